// Shows: a thread cancelled inside pthread_cond_wait holds the mutex again when its cleanup handler runs.
// Breaks if: the restartable wait is no cancellation point, or the handler runs without the mutex.
#include "guest.h"

enum { ROUNDS = 80 };

static pthread_mutex_t lock;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static int waiting;
static long unlocked;

static void unlock(void *arg)
{
    (void)arg;
    unlocked++;
    ZERO(pthread_mutex_unlock(&lock)); /* error-checking: fails unless we own it */
}

static void *run(void *arg)
{
    (void)arg;
    ZERO(pthread_mutex_lock(&lock));
    pthread_cleanup_push(unlock, NULL);
    waiting = 1;
    for (;;)
        ZERO(pthread_cond_wait(&never, &lock));
    pthread_cleanup_pop(0);
    return NULL;
}

int main(void)
{
    pthread_mutexattr_t attr;

    ZERO(pthread_mutexattr_init(&attr));
    ZERO(pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK));
    ZERO(pthread_mutex_init(&lock, &attr));
    for (int r = 0; r < ROUNDS; r++) {
        pthread_t t;
        int seen = 0;
        waiting = 0;
        t = guest_start(run, NULL);
        while (!seen) {
            ZERO(pthread_mutex_lock(&lock));
            seen = waiting;
            ZERO(pthread_mutex_unlock(&lock));
            guest_pause_us(50);
        }
        ZERO(pthread_cancel(t));
        CHECK(guest_join(t) == PTHREAD_CANCELED);
        ZERO(pthread_mutex_lock(&lock));
        ZERO(pthread_mutex_unlock(&lock));
    }
    printf("unlocked %ld\n", unlocked);
    CHECK(unlocked == ROUNDS);
    return guest_ok();
}
