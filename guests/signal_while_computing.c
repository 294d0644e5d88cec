// Shows: SIGALRM reaches a thread that computes without any call, while it computes and not when it is done.
// Breaks if: a signal waits for a door that does not come; it must cost protection instead.
// kit: allow unprotected the computing thread is interrupted where no copy can be
// kit: no-kill protection ends with the signal, and a kill behind it is a death like any other
// kit: no-record a signal is delivered between two doors, where no replay finds it again: the recording ends there, and says so
#include "guest.h"
#include <signal.h>
#include <sys/time.h>

enum { PARTS = 400, STEPS = 1 << 19 };

static volatile sig_atomic_t caught, part;
static volatile uint64_t sink;

static void handler(int signal)
{
    (void)signal;
    caught = part + 1;
}

int main(void)
{
    struct sigaction action = { .sa_handler = handler };
    struct itimerval timer = { { 0, 0 }, { 0, 1000 } };

    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
    /* Ends early once the signal has come: without it the computation takes its full time. */
    for (part = 0; part < PARTS && !caught; part++)
        for (int i = 0; i < STEPS; i++)
            sink = guest_mix(sink);
    CHECK(caught > 0 && part < PARTS);
    printf("caught\n");
    return guest_ok();
}
