// Shows: pthread_mutex_clocklock on the monotonic clock: never early, EINVAL for a clock that cannot be waited on.
// Breaks if: the door treats the deadline as real time, or returns ETIMEDOUT before it.
#include "guest.h"

enum { THREADS = 3, ROUNDS = 30 };

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER, shared = PTHREAD_MUTEX_INITIALIZER;
static long done;

static void *run(void *arg)
{
    (void)arg;
    for (int r = 0; r < ROUNDS; r++) {
        struct timespec soon = guest_deadline(CLOCK_MONOTONIC, 600);
        RETURNS(pthread_mutex_clocklock(&held, CLOCK_MONOTONIC, &soon), ETIMEDOUT);
        CHECK(guest_now_ns(CLOCK_MONOTONIC) >= (int64_t)soon.tv_sec * 1000000000 + soon.tv_nsec);
        struct timespec far = guest_deadline(CLOCK_MONOTONIC, 60 * 1000000L);
        ZERO(pthread_mutex_clocklock(&shared, CLOCK_MONOTONIC, &far));
        done++;
        ZERO(pthread_mutex_unlock(&shared));
        RETURNS(pthread_mutex_clocklock(&held, CLOCK_PROCESS_CPUTIME_ID, &far), EINVAL);
    }
    return NULL;
}

int main(void)
{
    pthread_t t[THREADS];

    ZERO(pthread_mutex_lock(&held));
    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, NULL);
    for (int i = 0; i < THREADS; i++)
        guest_join(t[i]);
    ZERO(pthread_mutex_unlock(&held));
    printf("done %ld\n", done);
    return guest_ok();
}
