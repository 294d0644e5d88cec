// Shows: ITIMER_VIRTUAL, ITIMER_PROF and a timer on a thread's CPU clock tick while the program works; CPU clocks never go back.
// Breaks if: a CPU clock begins anew with the promoted copy's, or a CPU timer is not set again there.
// kit: allow unprotected a thread that is kept from the processor for 10 ms comes too late to a door for its signal
#include "guest.h"
#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/times.h>

enum { TICKS = 4 };

static volatile sig_atomic_t virtual_ticks, prof_ticks, thread_ticks;

static void on_virtual(int signal)
{
    (void)signal;
    virtual_ticks++;
}

static void on_prof(int signal)
{
    (void)signal;
    prof_ticks++;
}

static void on_thread(int signal)
{
    (void)signal;
    thread_ticks++;
}

int main(void)
{
    struct sigaction a = { .sa_handler = on_virtual }, b = { .sa_handler = on_prof }, c = { .sa_handler = on_thread };
    struct itimerval every = { { 0, 4000 }, { 0, 4000 } }, never = { { 0, 0 }, { 0, 0 } };
    struct itimerspec soon = { { 0, 4000000 }, { 0, 4000000 } };
    struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2 };
    int64_t process = 0, thread = 0, user = 0, ticks = 0;
    uint64_t x = 1;
    timer_t timer;

    CHECK(sigaction(SIGVTALRM, &a, NULL) == 0 && sigaction(SIGPROF, &b, NULL) == 0 && sigaction(SIGUSR2, &c, NULL) == 0);
    CHECK(setitimer(ITIMER_VIRTUAL, &every, NULL) == 0 && setitimer(ITIMER_PROF, &every, NULL) == 0);
    CHECK(timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer) == 0 && timer_settime(timer, 0, &soon, NULL) == 0);
    clockid_t own;
    ZERO(pthread_getcpuclockid(pthread_self(), &own));
    while (virtual_ticks < TICKS || prof_ticks < TICKS || thread_ticks < TICKS) {
        struct rusage usage;
        struct tms times_now;
        x = guest_work(x, 20000);
        int64_t p = guest_now_ns(CLOCK_PROCESS_CPUTIME_ID), t = guest_now_ns(CLOCK_THREAD_CPUTIME_ID);
        CHECK(getrusage(RUSAGE_SELF, &usage) == 0 && times(&times_now) != (clock_t)-1);
        int64_t u = usage.ru_utime.tv_sec * 1000000 + usage.ru_utime.tv_usec;
        CHECK(guest_now_ns(own) >= t);
        CHECK(p >= process && t >= thread && u >= user && times_now.tms_utime >= ticks);
        process = p;
        thread = t;
        user = u;
        ticks = times_now.tms_utime;
    }
    CHECK(setitimer(ITIMER_VIRTUAL, &never, NULL) == 0 && setitimer(ITIMER_PROF, &never, NULL) == 0);
    CHECK(timer_delete(timer) == 0 && x != 0);
    return guest_ok();
}
