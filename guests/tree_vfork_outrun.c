// Shows: a child by vfork whose new image begins before its parent goes on, as the parent has the lowest priority, waits at once.
// Breaks if: it looks for its entry in the list of processes only once, before its parent has made it, and is never protected.
// kit: tree
#include "guest.h"
#include <sched.h>
#include <sys/wait.h>

enum { QUESTIONS = 20 };

/* The new image: answers each number with its square. */
static int answer(void)
{
    long n;

    while (read(0, &n, sizeof n) == sizeof n) {
        n *= n;
        guest_write_all(1, &n, sizeof n);
    }
    return 7;
}

static void run_as(int policy)
{
    struct sched_param none = { 0 };

    CHECK(sched_setscheduler(0, policy, &none) == 0);
}

static pid_t outrun_by(const char *name, int in, int out)
{
    cpu_set_t all, one;
    int first = 0;

    /* On one processor the child runs until it waits. */
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    while (!CPU_ISSET(first, &all))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    run_as(SCHED_IDLE);
    pid_t pid = vfork();
    if (pid == 0) {
        run_as(SCHED_OTHER);
        if (dup2(in, 0) == 0 && dup2(out, 1) == 1)
            execl("/proc/self/exe", name, "answer", NULL);
        _exit(120);
    }
    CHECK(pid > 0);
    run_as(SCHED_OTHER);
    return pid;
}

int main(int argc, char **argv)
{
    int down[2], up[2], status;
    long sum = 0;

    if (argc == 2)
        return answer();
    CHECK(pipe2(down, O_CLOEXEC) == 0 && pipe2(up, O_CLOEXEC) == 0);
    pid_t pid = outrun_by(argv[0], down[0], up[1]);
    for (long n = 1; n <= QUESTIONS; n++) {
        long square;
        guest_pause_us(15000);
        guest_write_all(down[1], &n, sizeof n);
        CHECK(read(up[0], &square, sizeof square) == sizeof square && square == n * n);
        sum += square;
    }
    CHECK(close(down[1]) == 0);
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    RETURNS(WEXITSTATUS(status), 7);
    printf("sum %ld\n", sum);
    return guest_ok();
}
