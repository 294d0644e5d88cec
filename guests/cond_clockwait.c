// Shows: pthread_cond_clockwait, and a condition variable whose attribute selects the monotonic clock.
// Breaks if: the wrong symbol version of the condition variable is reached, or the clock's choice is ignored.
#include "guest.h"

enum { THREADS = 3, ROUNDS = 30 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t monotonic, by_call = PTHREAD_COND_INITIALIZER;
static long timeouts;

static void *run(void *arg)
{
    int use_call = guest_num(arg) % 2 == 0;

    for (int r = 0; r < ROUNDS; r++) {
        int rc = 0;
        ZERO(pthread_mutex_lock(&lock));
        struct timespec soon = guest_deadline(CLOCK_MONOTONIC, 600);
        while (rc == 0)
            rc = use_call ? pthread_cond_clockwait(&by_call, &lock, CLOCK_MONOTONIC, &soon)
                          : pthread_cond_timedwait(&monotonic, &lock, &soon);
        CHECK(rc == ETIMEDOUT);
        CHECK(guest_now_ns(CLOCK_MONOTONIC) >= (int64_t)soon.tv_sec * 1000000000 + soon.tv_nsec);
        timeouts++;
        ZERO(pthread_mutex_unlock(&lock));
    }
    return NULL;
}

int main(void)
{
    pthread_condattr_t attr;
    pthread_t t[THREADS];

    ZERO(pthread_condattr_init(&attr));
    ZERO(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC));
    ZERO(pthread_cond_init(&monotonic, &attr));
    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, guest_ptr(i));
    for (int i = 0; i < THREADS; i++)
        guest_join(t[i]);
    printf("timeouts %ld\n", timeouts);
    return guest_ok();
}
