// Shows: nanosleep, usleep and clock_nanosleep (relative, absolute, past) never return early, in many threads.
// Breaks if: a sleep's remaining time is lost at a failover so that it ends early, or it starts again from the beginning for ever.
#include "guest.h"

enum { THREADS = 4, ROUNDS = 12 };

static void slept(int64_t since, long us)
{
    CHECK(guest_now_ns(CLOCK_MONOTONIC) - since >= (int64_t)us * 1000);
}

static void *run(void *arg)
{
    long us = 300 + 100 * guest_num(arg);

    for (int r = 0; r < ROUNDS; r++) {
        struct timespec t = { 0, us * 1000 };
        int64_t start = guest_now_ns(CLOCK_MONOTONIC);
        CHECK(nanosleep(&t, NULL) == 0);
        slept(start, us);
        start = guest_now_ns(CLOCK_MONOTONIC);
        ZERO(clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL));
        slept(start, us);
        t = guest_deadline(CLOCK_MONOTONIC, us);
        ZERO(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL));
        CHECK(guest_now_ns(CLOCK_MONOTONIC) >= (int64_t)t.tv_sec * 1000000000 + t.tv_nsec);
        t = guest_deadline(CLOCK_REALTIME, -1000);
        ZERO(clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &t, NULL));
        start = guest_now_ns(CLOCK_MONOTONIC);
        CHECK(usleep((useconds_t)us) == 0);
        slept(start, us);
    }
    struct timespec bad = { 0, 1000000000 };
    FAILS(nanosleep(&bad, NULL), EINVAL);
    return guest_ptr(ROUNDS * 5);
}

int main(void)
{
    pthread_t t[THREADS];
    long sleeps = 0;

    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, guest_ptr(i));
    for (int i = 0; i < THREADS; i++)
        sleeps += guest_num(guest_join(t[i]));
    printf("sleeps %ld\n", sleeps);
    return guest_ok();
}
