// Shows: signals that interrupt threads which compute for long and come to no door, and where: what a handler has changed is seen at once.
// Breaks if: such a signal costs the standby each time, or a copy is interrupted elsewhere than its primary.
// kit: no-record a recording ends with a signal that was due in a thread that computes
// kit: allow unprotected the first of them comes where nothing is counted yet; behind that a standby follows
// kit: allow standby_lost a kill may meet the copy that is given up for the next one
#include "computing.h"
#include "guest.h"
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

enum { THREADS = 2, STEPS = 150000, PERIOD_US = 4000 };

static __thread volatile sig_atomic_t asked;
static __thread volatile unsigned long mixed;
static int ends[THREADS][2];
static unsigned long sums[THREADS];

static void on_alarm(int signal)
{
    (void)signal;
    asked = 1;
    mixed = mixed * 31 + 7;
}

static void *run(void *arg)
{
    long self = guest_num(arg);
    int seen;
    unsigned long number;

    for (int i = 0; i < STEPS; i++) {
        sums[self] = step(sums[self]);
        if (asked) {
            /* Where it was asked, and how often, is seen outside of it. */
            asked = 0;
            number = mixed;
            CHECK(write(ends[self][1], &i, sizeof i) == sizeof i && write(ends[self][1], &number, sizeof number) == sizeof number);
            CHECK(read(ends[self][0], &seen, sizeof seen) == sizeof seen && seen == i);
            CHECK(read(ends[self][0], &number, sizeof number) == sizeof number);
        }
    }
    return NULL;
}

int main(void)
{
    struct itimerval every = { { 0, PERIOD_US }, { 0, PERIOD_US } }, never = { { 0, 0 }, { 0, 0 } };
    struct sigaction action = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
    pthread_t thread;

    for (int t = 0; t < THREADS; t++)
        CHECK(pipe(ends[t]) == 0);
    sums[1] = 1;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &every, NULL) == 0);
    /* Alone first. */
    run(guest_ptr(0));
    thread = guest_start(run, guest_ptr(1));
    run(guest_ptr(0));
    guest_join(thread);
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    printf("sums %lx %lx\n", sums[0], sums[1]);
    return guest_ok();
}
