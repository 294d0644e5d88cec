// Shows: try and timed variants of rwlocks: EBUSY and ETIMEDOUT against a writer and against readers, EDEADLK for the writer itself.
// Breaks if: a timed result is recomputed in the standby, or the writer's identity differs there.
#include "guest.h"

enum { THREADS = 3, ROUNDS = 25 };

static pthread_rwlock_t written = PTHREAD_RWLOCK_INITIALIZER, read_held = PTHREAD_RWLOCK_INITIALIZER;
static pthread_rwlock_t shared = PTHREAD_RWLOCK_INITIALIZER;
static long writes;
static pthread_mutex_t tries_lock = PTHREAD_MUTEX_INITIALIZER;
static long tries;

static void against_writer(void)
{
    struct timespec soon = guest_deadline(CLOCK_REALTIME, 300);

    RETURNS(pthread_rwlock_tryrdlock(&written), EBUSY);
    RETURNS(pthread_rwlock_trywrlock(&written), EBUSY);
    RETURNS(pthread_rwlock_timedrdlock(&written, &soon), ETIMEDOUT);
    RETURNS(pthread_rwlock_timedwrlock(&written, &soon), ETIMEDOUT);
}

static void against_reader(void)
{
    struct timespec soon = guest_deadline(CLOCK_MONOTONIC, 300);

    ZERO(pthread_rwlock_tryrdlock(&read_held));
    ZERO(pthread_rwlock_unlock(&read_held));
    RETURNS(pthread_rwlock_trywrlock(&read_held), EBUSY);
    RETURNS(pthread_rwlock_clockwrlock(&read_held, CLOCK_MONOTONIC, &soon), ETIMEDOUT);
}

static void *run(void *arg)
{
    (void)arg;
    for (int r = 0; r < ROUNDS; r++) {
        against_writer();
        against_reader();
        struct timespec far = guest_deadline(CLOCK_REALTIME, 60 * 1000000L);
        ZERO(pthread_rwlock_timedwrlock(&shared, &far));
        RETURNS(pthread_rwlock_rdlock(&shared), EDEADLK);
        writes++;
        ZERO(pthread_rwlock_unlock(&shared));
        ZERO(pthread_rwlock_timedrdlock(&shared, &far));
        ZERO(pthread_rwlock_unlock(&shared));
        ZERO(pthread_mutex_lock(&tries_lock));
        tries += 8;
        ZERO(pthread_mutex_unlock(&tries_lock));
    }
    return NULL;
}

int main(void)
{
    pthread_t t[THREADS];

    ZERO(pthread_rwlock_wrlock(&written));
    ZERO(pthread_rwlock_rdlock(&read_held));
    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, NULL);
    for (int i = 0; i < THREADS; i++)
        guest_join(t[i]);
    ZERO(pthread_rwlock_unlock(&written));
    ZERO(pthread_rwlock_unlock(&read_held));
    printf("writes %ld, tries %ld\n", writes, tries);
    return guest_ok();
}
