// Shows: a timer of each thread's own (SIGEV_THREAD_ID): its signal comes to that thread, with its value and SI_TIMER; timer_gettime, overruns.
// Breaks if: a timer made again at a promotion signals the process, or another thread, or has lost its value.
#include "guest.h"
#include <signal.h>
#include <sys/syscall.h>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

enum { THREADS = 3, TICKS = 40 };

static __thread long mine, ticks;

static void on_tick(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)context;
    CHECK(info->si_code == SI_TIMER && info->si_value.sival_int == mine && info->si_overrun >= 0);
    ticks++;
}

static void *work(void *arg)
{
    struct sigevent event = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN + 2 };
    struct itimerspec every = { { 0, 2000000 }, { 0, 1000000 } }, left;
    sigset_t block, before;
    timer_t timer;

    mine = 100 + guest_num(arg);
    event.sigev_value.sival_int = (int)mine;
    event.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
    sigemptyset(&block);
    sigaddset(&block, SIGRTMIN + 2);
    ZERO(pthread_sigmask(SIG_BLOCK, &block, &before));
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_settime(timer, 0, &every, NULL) == 0);
    while (ticks < TICKS) {
        FAILS(sigsuspend(&before), EINTR);
        CHECK(timer_gettime(timer, &left) == 0 && left.it_interval.tv_nsec == 2000000 && timer_getoverrun(timer) >= 0);
    }
    CHECK(timer_delete(timer) == 0);
    FAILS(timer_delete(timer), EINVAL);
    return guest_ptr(ticks);
}

int main(void)
{
    struct sigaction act = { .sa_sigaction = on_tick, .sa_flags = SA_SIGINFO };
    pthread_t threads[THREADS];

    CHECK(sigaction(SIGRTMIN + 2, &act, NULL) == 0);
    for (long i = 0; i < THREADS; i++)
        threads[i] = guest_start(work, guest_ptr(i));
    for (int i = 0; i < THREADS; i++)
        CHECK(guest_num(guest_join(threads[i])) >= TICKS);
    return guest_ok();
}
