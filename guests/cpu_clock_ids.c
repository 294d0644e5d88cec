// Shows: clocks of processor time with the number of this process, or of one of its threads, in them: a program reads them,
//        sleeps on them, and sets timers on them, for a while and until a moment.
// Breaks if: such a clock names the dead primary, counts anew, or a moment that it has shown is taken for one of another count.
// kit: allow unprotected a thread that is kept from the processor for 10 ms comes too late to a door for its signal
// kit: no-record a signal that is due in a thread that computes ends a recording
#include "guest.h"
#include <signal.h>

enum { CLOCKS = 5, ROUNDS = 12, MS = 1000000 };

/* As the kernel writes them: the number inverted, whether it is a thread's, and what is counted. */
enum { ALL_TICKS = 0, USER_TICKS = 1, WHOLE = 2, OF_THREAD = 4 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int done;
static volatile sig_atomic_t fired[CLOCKS];

static void on_timer(int signal)
{
    fired[signal - SIGRTMIN - 1]++;
}

/* Reads the clock between pieces of work: signals come there. */
static void burn(int64_t ns)
{
    int64_t until = guest_now_ns(CLOCK_THREAD_CPUTIME_ID) + ns;
    uint64_t x = 1;

    while (guest_now_ns(CLOCK_THREAD_CPUTIME_ID) < until)
        x = guest_work(x, 2000);
    CHECK(x != 0);
}

static void *work(void *arg)
{
    int is_done;
    sigset_t all;

    CHECK(sigfillset(&all) == 0);
    ZERO(pthread_sigmask(SIG_BLOCK, &all, NULL));
    do {
        burn(MS);
        ZERO(pthread_mutex_lock(&lock));
        is_done = done;
        ZERO(pthread_mutex_unlock(&lock));
    } while (!is_done);
    return arg;
}

static struct timespec time_of(int64_t ns)
{
    struct timespec t = { (time_t)(ns / 1000000000), (long)(ns % 1000000000) };

    return t;
}

static void sleep_on(clockid_t clock, int flags, int64_t ns)
{
    struct timespec t = time_of(ns);
    int error;

    /* What is left of one for a while is told. */
    while ((error = clock_nanosleep(clock, flags, &t, &t)) != 0)
        CHECK(error == EINTR);
}

int main(void)
{
    pthread_t worker = guest_start(work, NULL);
    clockid_t clocks[CLOCKS], own;
    int64_t last[CLOCKS] = { 0 };
    timer_t timers[CLOCKS];
    struct sigaction action = { .sa_handler = on_timer, .sa_flags = SA_RESTART };

    CHECK(clock_getcpuclockid(getpid(), &clocks[0]) == 0);
    ZERO(pthread_getcpuclockid(worker, &clocks[1]));
    clocks[2] = (clockid_t)(~(unsigned)getpid() << 3 | ALL_TICKS);
    clocks[3] = (clockid_t)(~(unsigned)getpid() << 3 | USER_TICKS);
    clocks[4] = (clockid_t)((~0u << 3) | WHOLE);
    for (int c = 0; c < CLOCKS; c++) {
        struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 1 + c };
        CHECK(sigaction(SIGRTMIN + 1 + c, &action, NULL) == 0);
        CHECK(timer_create(clocks[c], &event, &timers[c]) == 0);
    }
    own = (clockid_t)((~0u << 3) | OF_THREAD | WHOLE);
    for (int r = 1; r <= ROUNDS; r++) {
        int is_absolute = r % 2 ? 0 : TIMER_ABSTIME;
        for (int c = 0; c < CLOCKS; c++) {
            int64_t now = guest_now_ns(clocks[c]);
            struct itimerspec once = { { 0, 0 }, time_of(is_absolute ? now + 2 * MS : 2 * MS) };
            CHECK(now >= last[c]);
            last[c] = now;
            CHECK(timer_settime(timers[c], is_absolute, &once, NULL) == 0);
        }
        for (int c = 0; c < CLOCKS; c++)
            while (fired[c] < r)
                burn(MS / 2);
        CHECK(guest_now_ns(own) > 0 && guest_now_ns(own) >= guest_now_ns(CLOCK_THREAD_CPUTIME_ID) - 1000 * (int64_t)MS);
        for (int c = 0; c < 2; c++) {
            int64_t until = guest_now_ns(clocks[c]) + MS;
            sleep_on(clocks[c], is_absolute, is_absolute ? until : MS);
            last[c] = guest_now_ns(clocks[c]);
            CHECK(last[c] >= until);
        }
        for (int c = 0; c < CLOCKS; c++)
            CHECK(fired[c] == r);
    }
    ZERO(pthread_mutex_lock(&lock));
    done = 1;
    ZERO(pthread_mutex_unlock(&lock));
    guest_join(worker);
    for (int c = 0; c < CLOCKS; c++)
        CHECK(timer_delete(timers[c]) == 0);
    return guest_ok();
}
