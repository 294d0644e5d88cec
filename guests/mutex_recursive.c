// Shows: a recursive mutex counts its owner's locks and excludes others until the last unlock.
// Breaks if: the owner is named by a thread id that differs between the copies (EPERM, or self-deadlock after a failover).
#include "guest.h"

enum { THREADS = 4, ROUNDS = 80, DEPTH = 12 };

static pthread_mutex_t lock;
static long inside, visits;

static long descend(int depth)
{
    long sum;

    ZERO(pthread_mutex_lock(&lock));
    CHECK(inside++ == DEPTH - depth);
    visits++;
    sum = depth > 1 ? 1 + descend(depth - 1) : 1;
    if (depth == DEPTH / 2)
        ZERO(pthread_mutex_trylock(&lock));
    if (depth == DEPTH / 2)
        ZERO(pthread_mutex_unlock(&lock));
    inside--;
    ZERO(pthread_mutex_unlock(&lock));
    return sum;
}

static void *run(void *arg)
{
    (void)arg;
    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 0; i < 20; i++)
            CHECK(descend(DEPTH) == DEPTH);
        /* One unlock more than locks must be refused: the owner is nobody or another. */
        int rc = pthread_mutex_unlock(&lock);
        CHECK(rc == EPERM);
        guest_pause_us(300);
    }
    return NULL;
}

int main(void)
{
    pthread_mutexattr_t attr;
    pthread_t t[THREADS];

    ZERO(pthread_mutexattr_init(&attr));
    ZERO(pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE));
    ZERO(pthread_mutex_init(&lock, &attr));
    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, NULL);
    for (int i = 0; i < THREADS; i++)
        guest_join(t[i]);
    printf("visits %ld\n", visits);
    ZERO(pthread_mutex_destroy(&lock));
    return guest_ok();
}
