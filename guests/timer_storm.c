// Shows: a timer that fires faster than its handler runs neither starves the program nor eats its stack.
// Breaks if: what waits at a handler's end is delivered from within that handler's frame.
// kit: varies
// kit: no-kill in a promoted copy handlers of a timer that fires every 20 us run one inside the other
#include "guest.h"
#include <signal.h>

enum { SIGNALS = 1500, STACK = 128 << 10 };

static volatile sig_atomic_t fired;
static char *volatile top;

static void handler(int signal)
{
    char here;

    (void)signal;
    CHECK(top - &here < STACK);
    fired++;
}

int main(void)
{
    char here;
    struct sigaction action = { .sa_handler = handler };
    struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN };
    struct itimerspec often = { { 0, 20000 }, { 0, 20000 } }, off = { { 0, 0 }, { 0, 0 } };
    timer_t timer;

    top = &here;
    CHECK(sigaction(SIGRTMIN, &action, NULL) == 0);
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    CHECK(timer_settime(timer, 0, &often, NULL) == 0);
    while (fired < SIGNALS) {
        struct timespec moment = { 0, 100000 };

        if (nanosleep(&moment, NULL) != 0)
            CHECK(errno == EINTR);
        CHECK(timer_getoverrun(timer) >= 0);
    }
    CHECK(timer_settime(timer, 0, &off, NULL) == 0 && timer_delete(timer) == 0);
    return guest_ok();
}
