// Shows: children made by posix_spawn and by vfork with exec of this program, which work for a while and answer over pipes.
// Breaks if: what the child of a vfork does is taken for its parent's, or a spawned program is not followed.
// kit: tree
#include "guest.h"
#include <spawn.h>
#include <sys/wait.h>

enum { ROUNDS = 12, STEPS = 15 };

extern char **environ;

/* The new image: adds up what it reads from 0, says each sum to 1. */
static int add_up(void)
{
    long sum = 0, n;

    while (read(0, &n, sizeof n) == sizeof n) {
        sum += n;
        guest_write_all(1, &sum, sizeof sum);
    }
    return (int)(sum % 100);
}

static pid_t spawned(const char *name, int in, int out)
{
    const char *const argv[] = { name, "add", NULL };
    posix_spawn_file_actions_t actions;
    pid_t pid;

    ZERO(posix_spawn_file_actions_init(&actions));
    ZERO(posix_spawn_file_actions_adddup2(&actions, in, 0));
    ZERO(posix_spawn_file_actions_adddup2(&actions, out, 1));
    ZERO(posix_spawn(&pid, "/proc/self/exe", &actions, NULL, (char *const *)argv, environ));
    ZERO(posix_spawn_file_actions_destroy(&actions));
    return pid;
}

static pid_t vforked(const char *name, int in, int out)
{
    pid_t pid = vfork();

    if (pid == 0) {
        if (dup2(in, 0) == 0 && dup2(out, 1) == 1)
            execl("/proc/self/exe", name, "add", NULL);
        _exit(120);
    }
    return pid;
}

int main(int argc, char **argv)
{
    long total = 0;

    if (argc == 2)
        return add_up();
    for (int r = 0; r < ROUNDS; r++) {
        int down[2], up[2], status;
        long sum = 0;
        CHECK(pipe2(down, O_CLOEXEC) == 0 && pipe2(up, O_CLOEXEC) == 0);
        pid_t pid = (r % 2 ? vforked : spawned)(argv[0], down[0], up[1]);
        CHECK(pid > 0 && close(down[0]) == 0 && close(up[1]) == 0);
        for (long s = 0; s < STEPS; s++) {
            long n = r * 100 + s, answer;
            guest_write_all(down[1], &n, sizeof n);
            guest_read_all(up[0], &answer, sizeof answer);
            sum += n;
            CHECK(answer == sum);
            guest_pause_us(2000);
        }
        CHECK(close(down[1]) == 0);
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == sum % 100);
        CHECK(close(up[0]) == 0);
        total += sum;
    }
    printf("total %ld\n", total);
    return guest_ok();
}
