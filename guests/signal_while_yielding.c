// Shows: a thread that waits for its handler's word in a loop around sched_yield gets the signal.
// Breaks if: a door that leaves no event delivers nothing, however late the signal is.
// kit: allow unprotected the loop is interrupted where no copy can find it
// kit: no-kill protection ends with the signal, and a kill behind it is a death like any other
// kit: no-record a signal is delivered between two doors, where no replay finds it again: the recording ends there, and says so
#include "guest.h"
#include <sched.h>
#include <signal.h>
#include <sys/time.h>

enum { ROUNDS = 4 };

static volatile sig_atomic_t caught;

static void handler(int signal)
{
    (void)signal;
    caught++;
}

int main(void)
{
    struct sigaction action = { .sa_handler = handler };
    struct itimerval timer = { { 0, 0 }, { 0, 5000 } };

    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
        while (caught == r)
            sched_yield();
    }
    printf("caught %d\n", (int)caught);
    return guest_ok();
}
