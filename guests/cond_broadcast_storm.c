// Shows: six threads in cond_wait, woken together by broadcast generation after generation; nobody misses one.
// Breaks if: glibc's waiter groups keep ghosts of the dead copy: a later broadcast is then lost and the guest hangs.
#include "guest.h"

enum { THREADS = 6, ROUNDS = 120 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t opened = PTHREAD_COND_INITIALIZER, gathered = PTHREAD_COND_INITIALIZER;
static int generation, waiting;
static long wakeups;

static void *run(void *arg)
{
    (void)arg;
    ZERO(pthread_mutex_lock(&lock));
    for (int r = 0; r < ROUNDS; r++) {
        if (++waiting == THREADS)
            ZERO(pthread_cond_signal(&gathered));
        while (generation == r)
            ZERO(pthread_cond_wait(&opened, &lock));
        wakeups++;
    }
    ZERO(pthread_mutex_unlock(&lock));
    return NULL;
}

int main(void)
{
    pthread_t t[THREADS];

    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, NULL);
    for (int r = 0; r < ROUNDS; r++) {
        ZERO(pthread_mutex_lock(&lock));
        while (waiting != THREADS)
            ZERO(pthread_cond_wait(&gathered, &lock));
        waiting = 0;
        generation = r + 1;
        ZERO(pthread_cond_broadcast(&opened));
        ZERO(pthread_mutex_unlock(&lock));
        if (r % 4 == 0)
            guest_pause_us(500);
    }
    for (int i = 0; i < THREADS; i++)
        guest_join(t[i]);
    printf("wakeups %ld\n", wakeups);
    CHECK(wakeups == (long)THREADS * ROUNDS);
    return guest_ok();
}
