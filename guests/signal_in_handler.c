// Shows: a signal raised in its own handler is pending there, and delivered when the handler returns, before anything else.
// Breaks if: the end of a handler is no door: what waited for it is delivered at the next call that the log knows, or never.
#include "guest.h"
#include <sched.h>
#include <signal.h>

enum { ROUNDS = 60 };

static volatile sig_atomic_t depth, handled, others;

static void other(int signal)
{
    CHECK(signal == SIGUSR2 && depth == 0);
    others++;
}

static void handler(int signal)
{
    sigset_t waiting;

    CHECK(depth++ == 0);
    if (++handled % 2 != 0) {
        /* Blocked here: itself by default, the other one by sa_mask. */
        CHECK(raise(signal) == 0 && raise(SIGUSR2) == 0);
        CHECK(sigpending(&waiting) == 0);
        CHECK(sigismember(&waiting, signal) == 1 && sigismember(&waiting, SIGUSR2) == 1);
    }
    depth--;
}

int main(void)
{
    const int signals[] = { SIGUSR1, SIGABRT, SIGCHLD, SIGRTMIN + 3 };
    struct sigaction action = { .sa_handler = handler }, second = { .sa_handler = other };

    CHECK(sigaddset(&action.sa_mask, SIGUSR2) == 0);
    CHECK(sigaction(SIGUSR2, &second, NULL) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(sigaction(signals[i], &action, NULL) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        CHECK(raise(signals[r % 4]) == 0);
        CHECK(handled == 2 * r + 2 && others == r + 1);
        /* A loop that passes no door with an event: late is as bad as never. */
        while (handled != 2 * r + 2)
            sched_yield();
        guest_pause_us(700);
    }
    printf("handled %d and %d\n", (int)handled, (int)others);
    return guest_ok();
}
