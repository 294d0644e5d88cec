// Shows: sem_trywait (EAGAIN), sem_timedwait and sem_clockwait (ETIMEDOUT), sem_getvalue, EOVERFLOW at the top.
// Breaks if: a trywait's outcome is decided again by the standby's own count.
#include "guest.h"
#include <semaphore.h>

enum { THREADS = 3, ROUNDS = 30, STOCK = 5 };

static sem_t empty, stock;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long timeouts, taken;

static void *run(void *arg)
{
    (void)arg;
    for (int r = 0; r < ROUNDS; r++) {
        struct timespec soon = guest_deadline(CLOCK_REALTIME, 300);
        FAILS(sem_trywait(&empty), EAGAIN);
        FAILS(sem_timedwait(&empty, &soon), ETIMEDOUT);
        soon = guest_deadline(CLOCK_MONOTONIC, 300);
        FAILS(sem_clockwait(&empty, CLOCK_MONOTONIC, &soon), ETIMEDOUT);
        while (sem_trywait(&stock) != 0)
            CHECK(errno == EAGAIN);
        ZERO(pthread_mutex_lock(&lock));
        timeouts += 2;
        taken++;
        ZERO(pthread_mutex_unlock(&lock));
        CHECK(sem_post(&stock) == 0);
    }
    return NULL;
}

int main(void)
{
    pthread_t t[THREADS];
    sem_t full;
    int value;

    CHECK(sem_init(&empty, 0, 0) == 0);
    CHECK(sem_init(&stock, 0, STOCK) == 0);
    CHECK(sem_init(&full, 0, SEM_VALUE_MAX) == 0);
    FAILS(sem_post(&full), EOVERFLOW);
    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, NULL);
    for (int i = 0; i < THREADS; i++)
        guest_join(t[i]);
    CHECK(sem_getvalue(&stock, &value) == 0);
    printf("timeouts %ld, taken %ld, stock %d\n", timeouts, taken, value);
    CHECK(value == STOCK);
    CHECK(sem_destroy(&stock) == 0);
    return guest_ok();
}
