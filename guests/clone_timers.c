// Shows: one-shot timers of setitimer and timer_create fire exactly once each, and a stopped one never, across new standbys.
// Breaks if: a clone or a failover sets a timer twice, forgets one, or lets one that was stopped fire in the new copy.
#include "guest.h"
#include <signal.h>
#include <sys/time.h>

enum { ROUNDS = 40 };

static volatile sig_atomic_t alarms, queued[3];

static void on_alarm(int signal)
{
    (void)signal;
    alarms++;
}

static void on_timer(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)context;
    CHECK(info->si_code == SI_TIMER && info->si_value.sival_int >= 0 && info->si_value.sival_int < 3);
    queued[info->si_value.sival_int]++;
}

static timer_t make(int value)
{
    struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 3, .sigev_value.sival_int = value };
    timer_t timer;

    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    return timer;
}

static void set(timer_t timer, long us)
{
    struct itimerspec spec = { { 0, 0 }, { 0, us * 1000 } };

    CHECK(timer_settime(timer, 0, &spec, NULL) == 0);
}

int main(void)
{
    struct sigaction a = { .sa_handler = on_alarm }, b = { .sa_sigaction = on_timer, .sa_flags = SA_SIGINFO };
    sigset_t block, open_mask;

    CHECK(sigaction(SIGALRM, &a, NULL) == 0 && sigaction(SIGRTMIN + 3, &b, NULL) == 0);
    CHECK(sigemptyset(&block) == 0 && sigaddset(&block, SIGALRM) == 0 && sigaddset(&block, SIGRTMIN + 3) == 0);
    CHECK(sigprocmask(SIG_BLOCK, &block, &open_mask) == 0);
    timer_t soon = make(0), later = make(1), never = make(2);
    for (int r = 0; r < ROUNDS; r++) {
        struct itimerval once = { { 0, 0 }, { 0, 2500 } };
        CHECK(setitimer(ITIMER_REAL, &once, NULL) == 0);
        set(soon, 1000);
        set(later, 4000);
        set(never, 999999);
        while (alarms < r + 1 || queued[0] < r + 1 || queued[1] < r + 1)
            CHECK(sigsuspend(&open_mask) == -1 && errno == EINTR);
        set(never, 0);
        /* A second firing of any of them would be waiting by now. */
        guest_pause_us(1500);
        CHECK(sigprocmask(SIG_SETMASK, &open_mask, NULL) == 0);
        CHECK(sigprocmask(SIG_BLOCK, &block, NULL) == 0);
        CHECK(alarms == r + 1 && queued[0] == r + 1 && queued[1] == r + 1 && queued[2] == 0);
    }
    CHECK(timer_delete(soon) == 0 && timer_delete(later) == 0 && timer_delete(never) == 0);
    printf("alarms %d, timers %d %d %d\n", (int)alarms, (int)queued[0], (int)queued[1], (int)queued[2]);
    return guest_ok();
}
