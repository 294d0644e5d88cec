// Shows: threads that wait in a condition, semaphore, reader-writer lock, barrier, join and once while a standby is made.
// Breaks if: a waiter that a clone woke for a moment returns early, is counted twice, or waits for ever in the copy.
#include "guest.h"
#include <semaphore.h>

enum { ROUNDS = 25, READERS = 2 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t barrier;
static sem_t sem;
static pthread_once_t once[ROUNDS];
static long generation, posted, shared, ran, serial;

static void slow_once(void)
{
    guest_pause_us(3000);
    ran++;
}

static void *in_cond(void *arg)
{
    (void)arg;
    for (long g = 1; g <= ROUNDS; g++) {
        ZERO(pthread_mutex_lock(&lock));
        while (generation < g)
            ZERO(pthread_cond_wait(&cond, &lock));
        ZERO(pthread_mutex_unlock(&lock));
    }
    return NULL;
}

static void *in_sem(void *arg)
{
    (void)arg;
    for (int r = 0; r < ROUNDS; r++) {
        while (sem_wait(&sem) != 0)
            CHECK(errno == EINTR);
        ZERO(pthread_mutex_lock(&lock));
        CHECK(posted > r);
        ZERO(pthread_mutex_unlock(&lock));
    }
    return NULL;
}

static void *in_read_lock(void *arg)
{
    long seen = 0;

    (void)arg;
    while (seen < ROUNDS) {
        ZERO(pthread_rwlock_rdlock(&rwlock));
        CHECK(shared >= seen && shared % 2 == 0);
        seen = shared / 2;
        ZERO(pthread_rwlock_unlock(&rwlock));
        guest_pause_us(300);
    }
    return NULL;
}

static void *in_barrier(void *arg)
{
    (void)arg;
    for (int r = 0; r < ROUNDS; r++) {
        int rc = pthread_barrier_wait(&barrier);
        CHECK(rc == 0 || rc == PTHREAD_BARRIER_SERIAL_THREAD);
        if (rc != 0)
            serial++; /* one thread a round, and the barrier orders the rounds */
    }
    return NULL;
}

static void *in_once(void *arg)
{
    (void)arg;
    for (int r = 0; r < ROUNDS; r++)
        ZERO(pthread_once(&once[r], slow_once));
    return NULL;
}

static void *sleeper(void *arg)
{
    guest_pause_us(3000);
    return arg;
}

static void *in_join(void *arg)
{
    long sum = 0;

    (void)arg;
    for (long r = 0; r < ROUNDS; r++)
        sum += guest_num(guest_join(guest_start(sleeper, guest_ptr(r))));
    return guest_ptr(sum);
}

int main(void)
{
    pthread_t waits[8];
    int n = 0;

    for (int r = 0; r < ROUNDS; r++)
        once[r] = (pthread_once_t)PTHREAD_ONCE_INIT;
    ZERO(pthread_barrier_init(&barrier, NULL, 2));
    CHECK(sem_init(&sem, 0, 0) == 0);
    waits[n++] = guest_start(in_cond, NULL);
    waits[n++] = guest_start(in_sem, NULL);
    for (int r = 0; r < READERS; r++)
        waits[n++] = guest_start(in_read_lock, NULL);
    waits[n++] = guest_start(in_barrier, NULL);
    waits[n++] = guest_start(in_once, NULL);
    waits[n++] = guest_start(in_once, NULL);
    pthread_t joiner = guest_start(in_join, NULL);
    for (int r = 0; r < ROUNDS; r++) {
        /* The writer holds its lock for most of a round: the readers wait in it. */
        ZERO(pthread_rwlock_wrlock(&rwlock));
        shared++;
        guest_pause_us(3000);
        shared++;
        ZERO(pthread_rwlock_unlock(&rwlock));
        ZERO(pthread_mutex_lock(&lock));
        generation++;
        posted++;
        ZERO(pthread_cond_broadcast(&cond));
        ZERO(pthread_mutex_unlock(&lock));
        CHECK(sem_post(&sem) == 0);
        int rc = pthread_barrier_wait(&barrier);
        CHECK(rc == 0 || rc == PTHREAD_BARRIER_SERIAL_THREAD);
        if (rc != 0)
            serial++;
        guest_pause_us(500);
    }
    for (int i = 0; i < n; i++)
        guest_join(waits[i]);
    long sum = guest_num(guest_join(joiner));
    printf("generations %ld, once %ld, serial %ld, joined %ld, shared %ld\n", generation, ran, serial, sum, shared);
    return guest_ok();
}
