// Shows: threads that take turns are cancelled asleep: in a condition, at a semaphore, waiting for another's end, and each ends.
// Breaks if: a thread that slept when its primary died, and now acts, takes no notice of a request that only asks it to look.
// kit: turns whoever sleeps in a computed order is woken by the others, and by no kernel
#include "guest.h"
#include <semaphore.h>

enum { ROUNDS = 40 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static sem_t empty;
static int waiting, cleaned;

static void clean(void *holds)
{
    cleaned++;
    if (holds)
        ZERO(pthread_mutex_unlock(&lock));
}

static void say(void)
{
    ZERO(pthread_mutex_lock(&lock));
    waiting++;
    ZERO(pthread_mutex_unlock(&lock));
}

static void *in_condition(void *arg)
{
    (void)arg;
    ZERO(pthread_mutex_lock(&lock));
    pthread_cleanup_push(clean, &lock);
    waiting++;
    for (;;)
        ZERO(pthread_cond_wait(&never, &lock));
    pthread_cleanup_pop(0);
    return NULL;
}

static void *at_semaphore(void *arg)
{
    (void)arg;
    pthread_cleanup_push(clean, NULL);
    say();
    for (;;)
        CHECK(sem_wait(&empty) == 0);
    pthread_cleanup_pop(0);
    return NULL;
}

static void *for_another(void *other)
{
    pthread_cleanup_push(clean, NULL);
    say();
    ZERO(pthread_join(*(pthread_t *)other, NULL));
    pthread_cleanup_pop(0);
    return NULL;
}

int main(void)
{
    ZERO(sem_init(&empty, 0, 0));
    for (int r = 0; r < ROUNDS; r++) {
        pthread_t of[3];
        int seen = 0;
        waiting = 0;
        of[0] = guest_start(in_condition, NULL);
        of[1] = guest_start(for_another, &of[0]);
        of[2] = guest_start(at_semaphore, NULL);
        while (seen < 3) {
            ZERO(pthread_mutex_lock(&lock));
            seen = waiting;
            ZERO(pthread_mutex_unlock(&lock));
            guest_pause_us(50);
        }
        /* Whoever waits for another goes first: that one lives on until then. */
        for (int i = 1; i <= 3; i++) {
            ZERO(pthread_cancel(of[i % 3]));
            CHECK(guest_join(of[i % 3]) == PTHREAD_CANCELED);
        }
    }
    printf("cleaned %d\n", cleaned);
    CHECK(cleaned == 3 * ROUNDS);
    return guest_ok();
}
