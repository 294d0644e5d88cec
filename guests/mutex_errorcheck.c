// Shows: an error-checking mutex answers EDEADLK to its owner and EPERM to a stranger's unlock.
// Breaks if: the owner's thread id inside the mutex is the kernel's and not the group's.
#include "guest.h"

enum { THREADS = 4, ROUNDS = 80 };

static pthread_mutex_t lock;
static long deadlocks, strangers;

static void *run(void *arg)
{
    (void)arg;
    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 0; i < 50; i++) {
            /* Not ours now: between our own locks another thread or nobody holds it. */
            RETURNS(pthread_mutex_unlock(&lock), EPERM);
            ZERO(pthread_mutex_lock(&lock));
            RETURNS(pthread_mutex_lock(&lock), EDEADLK);
            RETURNS(pthread_mutex_trylock(&lock), EBUSY);
            deadlocks++;
            strangers++;
            ZERO(pthread_mutex_unlock(&lock));
        }
        guest_pause_us(300);
    }
    return NULL;
}

int main(void)
{
    pthread_mutexattr_t attr;
    pthread_t t[THREADS];

    ZERO(pthread_mutexattr_init(&attr));
    ZERO(pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK));
    ZERO(pthread_mutex_init(&lock, &attr));
    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, NULL);
    for (int i = 0; i < THREADS; i++)
        guest_join(t[i]);
    printf("EDEADLK %ld, EPERM %ld\n", deadlocks, strangers);
    return guest_ok();
}
