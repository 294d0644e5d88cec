// Shows: many timers that call functions: made by several threads, with attributes, of one expiry, overruns, deleted when they have fired.
// Breaks if: a deleted timer still calls its function, its thread takes the signals of others, or two timers get each other's values.
// kit: varies
#include "guest.h"
#include <semaphore.h>
#include <signal.h>

enum { THREADS = 3, TIMERS = 12 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct counted {
    sem_t called;
    int living;
};

static void on_expiry(union sigval value)
{
    struct counted *me = value.sival_ptr;
    sigset_t blocked;

    /* As libc's own: what is sent to the process is for other threads. */
    ZERO(pthread_sigmask(SIG_SETMASK, NULL, &blocked));
    CHECK(sigismember(&blocked, SIGUSR1) == 1 && sigismember(&blocked, SIGALRM) == 1);
    ZERO(pthread_mutex_lock(&lock));
    CHECK(me->living);
    ZERO(pthread_mutex_unlock(&lock));
    CHECK(sem_post(&me->called) == 0);
}

static void set_living(struct counted *me, int living)
{
    ZERO(pthread_mutex_lock(&lock));
    me->living = living;
    ZERO(pthread_mutex_unlock(&lock));
}

static void await(struct counted *me)
{
    while (sem_wait(&me->called) != 0)
        CHECK(errno == EINTR);
}

static void *run(void *arg)
{
    static struct counted all[THREADS][TIMERS];
    struct counted *mine = all[guest_num(arg)];
    pthread_attr_t attributes;

    ZERO(pthread_attr_init(&attributes));
    ZERO(pthread_attr_setstacksize(&attributes, 256 << 10));
    for (int i = 0; i < TIMERS; i++) {
        struct sigevent event = { .sigev_notify = SIGEV_THREAD, .sigev_value.sival_ptr = &mine[i] };
        struct itimerspec once = { { 0, 0 }, { 0, 500000 } };
        timer_t timer;

        event.sigev_notify_function = on_expiry;
        event.sigev_notify_attributes = i % 2 ? &attributes : NULL;
        CHECK(sem_init(&mine[i].called, 0, 0) == 0);
        set_living(&mine[i], 1);
        CHECK(timer_create(i % 3 ? CLOCK_MONOTONIC : CLOCK_REALTIME, &event, &timer) == 0);
        CHECK(timer_settime(timer, 0, &once, NULL) == 0);
        await(&mine[i]);
        CHECK(timer_settime(timer, 0, &once, NULL) == 0);
        await(&mine[i]);
        CHECK(timer_getoverrun(timer) == 0);
        CHECK(timer_delete(timer) == 0);
        guest_pause_us(300);
    }
    ZERO(pthread_attr_destroy(&attributes));
    return NULL;
}

int main(void)
{
    pthread_t t[THREADS];

    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, guest_ptr(i));
    for (int i = 0; i < THREADS; i++)
        guest_join(t[i]);
    return guest_ok();
}
