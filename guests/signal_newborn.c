// Shows: signals to children that have just been made: one that ends them, and one that their handler takes.
// Breaks if: a child's end in its first instructions is taken for its parent's, or a signal there is forgotten with the parent's.
#include "guest.h"
#include <signal.h>
#include <sys/wait.h>

enum { ROUNDS = 60 };

static volatile sig_atomic_t heard;

static void on_signal(int signal)
{
    (void)signal;
    heard = 1;
}

static pid_t vfork_that_waits(void)
{
    pid_t child = vfork();

    if (child == 0) {
        raise(SIGTERM);
        _exit(1);
    }
    return child;
}

static int status_of(pid_t child)
{
    int status;

    CHECK(waitpid(child, &status, 0) == child);
    return status;
}

int main(void)
{
    struct sigaction act = { .sa_handler = on_signal };

    CHECK(sigaction(SIGUSR1, &act, NULL) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        int signal = r % 2 ? SIGUSR1 : SIGTERM, status;
        pid_t child = r % 6 == 4 ? vfork_that_waits() : fork();

        CHECK(child >= 0);
        if (child == 0) {
            for (int looks = 0; !heard && looks < 10000; looks++)
                guest_pause_us(500);
            _exit(heard ? 7 : 1);
        }
        if (r % 6 != 4)
            CHECK(kill(child, signal) == 0);
        status = status_of(child);
        if (signal == SIGTERM)
            CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
        else
            CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
        guest_pause_us(2000);
    }
    printf("%d children\n", ROUNDS);
    return guest_ok();
}
