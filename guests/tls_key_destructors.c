// Shows: pthread keys: destructors run at thread end, again while they set values, and a deleted key's never.
// Breaks if: thread exit is published before the destructors ran, or key creation order differs between copies.
#include "guest.h"

enum { THREADS = 4, ROUNDS = 40, KEYS = 8 };

static pthread_key_t keys[KEYS], again, dead;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long destroyed, revived;

static void destroy(void *arg)
{
    ZERO(pthread_mutex_lock(&lock));
    destroyed += *(long *)arg;
    ZERO(pthread_mutex_unlock(&lock));
    free(arg);
}

static void revive(void *arg)
{
    long n = guest_num(arg);

    ZERO(pthread_mutex_lock(&lock));
    revived++;
    ZERO(pthread_mutex_unlock(&lock));
    if (n > 1)
        ZERO(pthread_setspecific(again, guest_ptr(n - 1)));
}

static void never(void *arg)
{
    (void)arg;
    guest_fail(__FILE__, __LINE__, "the destructor of a deleted key ran", 0);
}

static void *run(void *arg)
{
    (void)arg;
    for (int k = 0; k < KEYS; k++) {
        long *n = (long *)malloc(sizeof *n);
        *n = k;
        CHECK(pthread_getspecific(keys[k]) == NULL);
        ZERO(pthread_setspecific(keys[k], n));
    }
    ZERO(pthread_setspecific(again, guest_ptr(3)));
    guest_pause_us(100);
    for (int k = 0; k < KEYS; k++)
        CHECK(*(long *)pthread_getspecific(keys[k]) == k);
    return NULL;
}

int main(void)
{
    for (int k = 0; k < KEYS; k++)
        ZERO(pthread_key_create(&keys[k], destroy));
    ZERO(pthread_key_create(&again, revive));
    for (int r = 0; r < ROUNDS; r++) {
        pthread_t t[THREADS];
        ZERO(pthread_key_create(&dead, never));
        ZERO(pthread_setspecific(dead, "x"));
        for (int i = 0; i < THREADS; i++)
            t[i] = guest_start(run, NULL);
        for (int i = 0; i < THREADS; i++)
            guest_join(t[i]);
        ZERO(pthread_key_delete(dead));
        guest_pause_us(300);
    }
    printf("destroyed %ld, revived %ld\n", destroyed, revived);
    CHECK(destroyed == ROUNDS * THREADS * (KEYS * (KEYS - 1) / 2));
    CHECK(revived == ROUNDS * THREADS * 3);
    return guest_ok();
}
