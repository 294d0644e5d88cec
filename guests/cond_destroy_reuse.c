// Shows: a condition variable is destroyed and made anew at one address once its last waiter was woken.
// Breaks if: an abandoned waiter is still counted inside the object: pthread_cond_destroy then blocks for ever.
#include "guest.h"

enum { ROUNDS = 150 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t *cond;
static int ready, done, serving;

static void *waiter(void *arg)
{
    (void)arg;
    ZERO(pthread_mutex_lock(&lock));
    ready = 1;
    while (!done)
        ZERO(pthread_cond_wait(cond, &lock));
    serving++;
    ZERO(pthread_mutex_unlock(&lock));
    return NULL;
}

int main(void)
{
    for (int r = 0; r < ROUNDS; r++) {
        pthread_cond_t *fresh = (pthread_cond_t *)malloc(sizeof *fresh);
        pthread_t t;

        ZERO(pthread_cond_init(fresh, NULL));
        cond = fresh;
        ready = done = 0;
        t = guest_start(waiter, NULL);
        for (int seen = 0; !seen; ) {
            ZERO(pthread_mutex_lock(&lock));
            seen = ready;
            done = seen;
            if (seen)
                ZERO(pthread_cond_broadcast(fresh));
            ZERO(pthread_mutex_unlock(&lock));
            guest_pause_us(100);
        }
        /* POSIX allows destroying right after a broadcast, before the woken thread has left. */
        ZERO(pthread_mutex_lock(&lock));
        ZERO(pthread_mutex_unlock(&lock));
        guest_join(t);
        ZERO(pthread_cond_destroy(fresh));
        free(fresh);
    }
    printf("served %d\n", serving);
    return guest_ok();
}
