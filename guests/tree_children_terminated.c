// Shows: four threads that end children of their own by a signal, and wait for each: the wait tells of that signal, and at once.
// Breaks if: a copy that finds that its dead primary had been told of such an end waits for a decision that nobody makes.
// kit: tree
#include "guest.h"
#include <signal.h>
#include <sys/wait.h>

enum { THREADS = 4, ROUNDS = 40, SOON_MS = 2000 };

static void *ends_children(void *arg)
{
    int me = (int)guest_num(arg);

    for (int r = 0; r < ROUNDS; r++) {
        int status, signal = (me + r) % 3 == 0 ? SIGKILL : (me + r) % 3 == 1 ? SIGTERM : SIGUSR1;
        pid_t got, child = fork();

        CHECK(child >= 0);
        if (child == 0) {
            for (;;)
                pause();
        }
        /* Some before they have done anything. */
        if ((me + r) % 2)
            guest_pause_us(8000 + 3000 * (r % 4));
        ZERO(kill(child, signal));
        int64_t before = guest_now_ns(CLOCK_MONOTONIC);
        while ((got = waitpid(child, &status, 0)) < 0)
            CHECK(errno == EINTR);
        long ms = (long)((guest_now_ns(CLOCK_MONOTONIC) - before) / 1000000);
        CHECK(got == child && WIFSIGNALED(status) && WTERMSIG(status) == signal);
        if (ms >= SOON_MS)
            fprintf(stderr, "told of signal %d after %ld ms\n", signal, ms);
        CHECK(ms < SOON_MS);
    }
    return NULL;
}

int main(void)
{
    guest_run(ends_children, THREADS);
    FAILS(waitpid(-1, NULL, 0), ECHILD);
    return guest_ok();
}
