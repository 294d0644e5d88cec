// Shows: timers of processor time that fire once do so once, however long the program computes.
// Breaks if: a promoted copy, which knows nothing of the processor time that was used up, sets one again that has fired.
// kit: allow unprotected a thread that is kept from the processor for 10 ms comes too late to a door for its signal
// kit: no-record a signal that is due in a thread that computes ends a recording
#include "guest.h"
#include <signal.h>
#include <sys/time.h>

enum { ROUNDS = 6, TIMERS = 3, MS = 1000000 };

static volatile sig_atomic_t fired[TIMERS];

static void on_virtual(int signal)
{
    (void)signal;
    fired[0]++;
}

static void on_prof(int signal)
{
    (void)signal;
    fired[1]++;
}

static void on_process(int signal)
{
    (void)signal;
    fired[2]++;
}

/* Computes for so much processor time. The clock is read in a door, where signals come. */
static void burn(int64_t ns)
{
    int64_t until = guest_now_ns(CLOCK_PROCESS_CPUTIME_ID) + ns;
    uint64_t x = 1;

    while (guest_now_ns(CLOCK_PROCESS_CPUTIME_ID) < until)
        x = guest_work(x, 2000);
    CHECK(x != 0);
}

int main(void)
{
    struct sigaction a = { .sa_handler = on_virtual }, b = { .sa_handler = on_prof }, c = { .sa_handler = on_process };
    struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2 };
    timer_t timer;

    CHECK(sigaction(SIGVTALRM, &a, NULL) == 0 && sigaction(SIGPROF, &b, NULL) == 0 && sigaction(SIGUSR2, &c, NULL) == 0);
    CHECK(timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &timer) == 0);
    for (int r = 1; r <= ROUNDS; r++) {
        struct itimerval once = { { 0, 0 }, { 0, 4000 } };
        struct itimerspec soon = { { 0, 0 }, { 0, 4 * MS } };
        CHECK(setitimer(ITIMER_VIRTUAL, &once, NULL) == 0 && setitimer(ITIMER_PROF, &once, NULL) == 0);
        CHECK(timer_settime(timer, 0, &soon, NULL) == 0);
        while (fired[0] < r || fired[1] < r || fired[2] < r)
            burn(MS);
        burn(12 * MS);
        CHECK(fired[0] == r && fired[1] == r && fired[2] == r);
    }
    CHECK(timer_delete(timer) == 0);
    return guest_ok();
}
