// Shows: nobody returns from pthread_cond_wait who was not signalled: three waiters that take every return for a
// token, as memcached's maintenance thread does. glibc practically never wakes anybody for nothing.
// Breaks if: promotion or a copy makes sleepers return, or a standby forgets who has been signalled (a hang).
#include "guest.h"

enum { WAITERS = 3, ROUNDS = 150 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t go = PTHREAD_COND_INITIALIZER, idle = PTHREAD_COND_INITIALIZER;
static int asleep, tokens, taken, over;

static void *waiter(void *arg)
{
    struct timespec far = guest_deadline(CLOCK_REALTIME, 3600 * 1000000L);

    ZERO(pthread_mutex_lock(&lock));
    for (;;) {
        asleep++;
        ZERO(pthread_cond_signal(&idle));
        if (arg)
            ZERO(pthread_cond_timedwait(&go, &lock, &far));
        else
            ZERO(pthread_cond_wait(&go, &lock));
        if (over)
            break;
        CHECK(tokens == 1);
        tokens--;
        taken++;
    }
    ZERO(pthread_mutex_unlock(&lock));
    return NULL;
}

int main(void)
{
    pthread_t t[WAITERS];

    for (int i = 0; i < WAITERS; i++)
        t[i] = guest_start(waiter, i == 0 ? &over : NULL);
    ZERO(pthread_mutex_lock(&lock));
    for (int r = 0; r < ROUNDS; r++) {
        while (asleep != WAITERS || tokens != 0)
            ZERO(pthread_cond_wait(&idle, &lock));
        if (r % 8 == 0) { /* everybody sleeps for a while: nobody may move */
            ZERO(pthread_mutex_unlock(&lock));
            guest_pause_us(1000);
            ZERO(pthread_mutex_lock(&lock));
            CHECK(asleep == WAITERS && taken == r);
        }
        asleep--;
        tokens = 1;
        ZERO(pthread_cond_signal(&go));
    }
    while (asleep != WAITERS || tokens != 0)
        ZERO(pthread_cond_wait(&idle, &lock));
    over = 1;
    ZERO(pthread_cond_broadcast(&go));
    ZERO(pthread_mutex_unlock(&lock));
    for (int i = 0; i < WAITERS; i++)
        guest_join(t[i]);
    printf("tokens taken %d\n", taken);
    CHECK(taken == ROUNDS);
    return guest_ok();
}
