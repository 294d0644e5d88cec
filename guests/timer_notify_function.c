// Shows: SIGEV_THREAD: libc makes a thread of its own for each tick of a timer and calls a function there with the timer's value.
// Breaks if: libc's helper for such timers is not there in a copy, or the standby calls the function at a moment of its own.
// kit: varies
#include "guest.h"
#include <semaphore.h>
#include <signal.h>

enum { TICKS = 30 };

static sem_t ticked;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long calls;

static void on_tick(union sigval value)
{
    CHECK(value.sival_ptr == &ticked);
    ZERO(pthread_mutex_lock(&lock));
    calls++;
    ZERO(pthread_mutex_unlock(&lock));
    CHECK(sem_post(&ticked) == 0);
}

int main(void)
{
    struct sigevent event = { .sigev_notify = SIGEV_THREAD, .sigev_value.sival_ptr = &ticked };
    struct itimerspec every = { { 0, 2000000 }, { 0, 1000000 } }, never = { { 0, 0 }, { 0, 0 } };
    timer_t timer;

    event.sigev_notify_function = on_tick;
    CHECK(sem_init(&ticked, 0, 0) == 0 && timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    CHECK(timer_settime(timer, 0, &every, NULL) == 0);
    for (int i = 0; i < TICKS; i++)
        while (sem_wait(&ticked) != 0)
            CHECK(errno == EINTR);
    CHECK(timer_settime(timer, 0, &never, NULL) == 0);
    ZERO(pthread_mutex_lock(&lock));
    CHECK(calls >= TICKS);
    ZERO(pthread_mutex_unlock(&lock));
    CHECK(timer_delete(timer) == 0);
    return guest_ok();
}
