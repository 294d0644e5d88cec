// Shows: a robust mutex whose owner thread ends: the next locker gets EOWNERDEAD exactly once, repairs
//        the state and marks it consistent; without the repair it becomes ENOTRECOVERABLE.
// Breaks if: the kernel's robust list walk compares real thread ids with the group's, or a standby never learns of the death.
#include "guest.h"

enum { ROUNDS = 60, WAITERS = 3 };

static pthread_mutex_t lock;
static pthread_mutexattr_t attr;
static long half_done;
static long owner_dead_seen;

static void *die_holding(void *arg)
{
    ZERO(pthread_mutex_lock(&lock));
    half_done = guest_num(arg);
    return NULL; /* without unlocking */
}

static void *wait_for_it(void *arg)
{
    int rc = pthread_mutex_lock(&lock);

    (void)arg;
    if (rc == EOWNERDEAD) {
        half_done = 0;
        owner_dead_seen++;
        ZERO(pthread_mutex_consistent(&lock));
    } else {
        CHECK(rc == 0);
    }
    CHECK(half_done == 0);
    ZERO(pthread_mutex_unlock(&lock));
    return NULL;
}

static void one_death(long round)
{
    pthread_t owner = guest_start(die_holding, guest_ptr(round + 1)), waiter[WAITERS];

    guest_join(owner);
    for (int i = 0; i < WAITERS; i++)
        waiter[i] = guest_start(wait_for_it, NULL);
    for (int i = 0; i < WAITERS; i++)
        guest_join(waiter[i]);
    CHECK(owner_dead_seen == round + 1);
}

static void not_recovered(void)
{
    guest_join(guest_start(die_holding, guest_ptr(7)));
    RETURNS(pthread_mutex_lock(&lock), EOWNERDEAD);
    ZERO(pthread_mutex_unlock(&lock)); /* without pthread_mutex_consistent */
    RETURNS(pthread_mutex_lock(&lock), ENOTRECOVERABLE);
    RETURNS(pthread_mutex_trylock(&lock), ENOTRECOVERABLE);
    ZERO(pthread_mutex_destroy(&lock));
    ZERO(pthread_mutex_init(&lock, &attr));
}

int main(void)
{
    ZERO(pthread_mutexattr_init(&attr));
    ZERO(pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST));
    ZERO(pthread_mutex_init(&lock, &attr));
    for (long r = 0; r < ROUNDS; r++) {
        one_death(r);
        not_recovered();
        guest_pause_us(200);
    }
    printf("owner deaths %ld\n", owner_dead_seen);
    return guest_ok();
}
