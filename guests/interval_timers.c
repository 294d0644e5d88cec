// Shows: setitimer, alarm and timer_create with a signal and a value: they fire, repeat, and stop when told.
// Breaks if: timers, which belong to the dead process, are not set again at a failover.
#include "guest.h"
#include <signal.h>
#include <sys/time.h>

enum { ROUNDS = 20 };

static volatile sig_atomic_t ticks, values;

static void tick(int signal)
{
    (void)signal;
    ticks++;
}

static void valued(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)context;
    CHECK(info->si_code == SI_TIMER && info->si_value.sival_int == 77);
    values++;
}

int main(void)
{
    struct sigaction a = { .sa_handler = tick }, b = { .sa_sigaction = valued, .sa_flags = SA_SIGINFO };
    struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 2, .sigev_value.sival_int = 77 };
    sigset_t block, open_mask;
    timer_t timer;

    CHECK(sigaction(SIGALRM, &a, NULL) == 0 && sigaction(SIGRTMIN + 2, &b, NULL) == 0);
    CHECK(sigemptyset(&block) == 0 && sigaddset(&block, SIGALRM) == 0 && sigaddset(&block, SIGRTMIN + 2) == 0);
    CHECK(sigprocmask(SIG_BLOCK, &block, &open_mask) == 0);
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        struct itimerval every = { { 0, 300 }, { 0, 300 } }, never = { { 0, 0 }, { 0, 0 } }, left;
        struct itimerspec spec = { { 0, 300000 }, { 0, 300000 } }, none = { { 0, 0 }, { 0, 0 } };
        ticks = values = 0;
        CHECK(setitimer(ITIMER_REAL, &every, NULL) == 0);
        CHECK(timer_settime(timer, 0, &spec, NULL) == 0);
        while (ticks < 4 || values < 4)
            CHECK(sigsuspend(&open_mask) == -1 && errno == EINTR);
        CHECK(getitimer(ITIMER_REAL, &left) == 0 && left.it_interval.tv_usec == 300);
        CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0 && timer_settime(timer, 0, &none, NULL) == 0);
        CHECK(alarm(100) == 0 && alarm(0) > 0);
    }
    CHECK(timer_delete(timer) == 0);
    printf("rounds %d\n", ROUNDS);
    return guest_ok();
}
