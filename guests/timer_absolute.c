// Shows: timers that repeat, set to a moment or to a time from now: never more expiries, overruns included, than time has passed.
// Breaks if: one that was set to a moment is set to that moment again by a promoted copy: all since then would count once more.
#include "guest.h"
#include <signal.h>

enum { MS = 1000000, EVERY = 4 * MS, LAST = 60, TIMERS = 2 };

int main(void)
{
    struct sigevent event = { .sigev_notify = SIGEV_SIGNAL };
    struct itimerspec spec = { { 0, EVERY }, { 0, EVERY } };
    int64_t start[TIMERS], count[TIMERS] = { 0, 0 };
    timer_t timers[TIMERS];
    sigset_t both;

    CHECK(sigemptyset(&both) == 0);
    for (int i = 0; i < TIMERS; i++)
        CHECK(sigaddset(&both, SIGRTMIN + i) == 0);
    CHECK(sigprocmask(SIG_BLOCK, &both, NULL) == 0);
    for (int i = 0; i < TIMERS; i++) {
        event.sigev_signo = SIGRTMIN + i;
        CHECK(timer_create(CLOCK_MONOTONIC, &event, &timers[i]) == 0);
        start[i] = guest_now_ns(CLOCK_MONOTONIC);
        if (i == 1)
            spec.it_value = guest_deadline(CLOCK_MONOTONIC, EVERY / 1000);
        CHECK(timer_settime(timers[i], i == 1 ? TIMER_ABSTIME : 0, &spec, NULL) == 0);
    }
    while (count[0] < LAST || count[1] < LAST) {
        siginfo_t info;
        int signal = sigwaitinfo(&both, &info);
        if (signal < 0) {
            CHECK(errno == EINTR);
            continue;
        }
        int i = signal - SIGRTMIN;
        CHECK(info.si_code == SI_TIMER && info.si_overrun >= 0);
        count[i] += 1 + info.si_overrun;
        /* Those of its beat: the last one may have come while this one was on its way. */
        CHECK(count[i] <= (guest_now_ns(CLOCK_MONOTONIC) - start[i]) / EVERY + 1);
    }
    CHECK(timer_delete(timers[0]) == 0 && timer_delete(timers[1]) == 0);
    return guest_ok();
}
