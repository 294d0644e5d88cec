// Shows: pthread_mutex_timedlock times out while another thread holds the mutex and succeeds when it is free.
// Breaks if: a timed outcome is computed again in the standby instead of being taken from the log.
#include "guest.h"

enum { THREADS = 3, ROUNDS = 25 };

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER, shared = PTHREAD_MUTEX_INITIALIZER;
static long timeouts, successes;

static void *run(void *arg)
{
    (void)arg;
    for (int r = 0; r < ROUNDS; r++) {
        struct timespec soon = guest_deadline(CLOCK_REALTIME, 500);
        RETURNS(pthread_mutex_timedlock(&held, &soon), ETIMEDOUT);
        struct timespec past = guest_deadline(CLOCK_REALTIME, -1000);
        RETURNS(pthread_mutex_timedlock(&held, &past), ETIMEDOUT);
        struct timespec far = guest_deadline(CLOCK_REALTIME, 60 * 1000000L);
        ZERO(pthread_mutex_timedlock(&shared, &far));
        timeouts += 2;
        successes++;
        guest_pause_us(100);
        ZERO(pthread_mutex_unlock(&shared));
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
    struct timespec past = guest_deadline(CLOCK_REALTIME, -1000);
    ZERO(pthread_mutex_timedlock(&held, &past)); /* free: the time does not matter */
    printf("timeouts %ld, successes %ld\n", timeouts, successes);
    return guest_ok();
}
