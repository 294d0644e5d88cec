// Shows: deferred cancellation acts at a cancellation point only, not while disabled, and runs the handlers.
// Breaks if: a door that replaces a blocking call is no cancellation point, or is one where POSIX has none.
#include "guest.h"

enum { ROUNDS = 80 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int running, told;
static long handlers, shielded;

static void handler(void *arg)
{
    (void)arg;
    handlers++;
}

static void *run(void *arg)
{
    int old;

    (void)arg;
    ZERO(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old));
    CHECK(old == PTHREAD_CANCEL_ENABLE);
    pthread_cleanup_push(handler, NULL);
    ZERO(pthread_mutex_lock(&lock));
    running = 1;
    ZERO(pthread_cond_broadcast(&changed));
    while (!told)
        ZERO(pthread_cond_wait(&changed, &lock));
    ZERO(pthread_mutex_unlock(&lock));
    /* The request is pending now; neither of these may act on it. */
    pthread_testcancel();
    guest_pause_us(100);
    shielded++;
    ZERO(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old));
    ZERO(pthread_mutex_lock(&lock)); /* not a cancellation point */
    ZERO(pthread_mutex_unlock(&lock));
    pthread_testcancel();
    guest_fail(__FILE__, __LINE__, "cancelled at testcancel", 0);
    pthread_cleanup_pop(0);
    return NULL;
}

int main(void)
{
    for (int r = 0; r < ROUNDS; r++) {
        pthread_t t;
        running = told = 0;
        t = guest_start(run, NULL);
        ZERO(pthread_mutex_lock(&lock));
        while (!running)
            ZERO(pthread_cond_wait(&changed, &lock));
        ZERO(pthread_mutex_unlock(&lock));
        ZERO(pthread_cancel(t));
        ZERO(pthread_mutex_lock(&lock));
        told = 1;
        ZERO(pthread_cond_broadcast(&changed));
        ZERO(pthread_mutex_unlock(&lock));
        CHECK(guest_join(t) == PTHREAD_CANCELED);
        guest_pause_us(200);
    }
    printf("handlers %ld, shielded %ld\n", handlers, shielded);
    CHECK(handlers == ROUNDS && shielded == ROUNDS);
    return guest_ok();
}
