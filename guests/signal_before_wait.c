// Shows: a program that looks at its handler's flag and then waits is not left waiting by a signal that came while it computed, before the look.
// Breaks if: a signal is delivered at the door of a wait, behind that look, and the wait begun all the same.
// kit: allow unprotected on a busy machine the thread computes for so long that the signal is late
// kit: no-kill protection may end with the signal, and a kill behind it is a death like any other
// kit: no-record a signal that is late is delivered where no replay finds it again: the recording ends there, and says so
#include "guest.h"
#include <poll.h>
#include <signal.h>
#include <sys/time.h>

enum { ROUNDS = 8, STEPS = 1 << 18 };

static volatile sig_atomic_t stop;
static volatile uint64_t result;

static void handler(int signal)
{
    (void)signal;
    stop = 1;
}

int main(void)
{
    struct sigaction action = { .sa_handler = handler };
    struct itimerval soon = { { 0, 0 }, { 0, 500 } };
    int slept = 0;

    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        stop = 0;
        CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
        result = guest_work((uint64_t)r, STEPS);
        if (stop)
            continue;
        slept += poll(NULL, 0, 400) == 0;
        CHECK(stop);
    }
    /* Natively there are some nanoseconds between the look and the wait, and one may come there. */
    CHECK(slept <= 1);
    return guest_ok();
}
