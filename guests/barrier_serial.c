// Shows: a barrier lets all threads go together and names exactly one serial thread in each round.
// Breaks if: the serial thread of the log and that of the standby differ, or an arrival is released before it is published.
#include "guest.h"

enum { THREADS = 4, ROUNDS = 150 };

static pthread_barrier_t barrier;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int serial[ROUNDS], arrived[ROUNDS];

static void *run(void *arg)
{
    (void)arg;
    for (int r = 0; r < ROUNDS; r++) {
        ZERO(pthread_mutex_lock(&lock));
        arrived[r]++;
        ZERO(pthread_mutex_unlock(&lock));
        int rc = pthread_barrier_wait(&barrier);
        CHECK(rc == 0 || rc == PTHREAD_BARRIER_SERIAL_THREAD);
        ZERO(pthread_mutex_lock(&lock));
        CHECK(arrived[r] == THREADS);
        serial[r] += rc == PTHREAD_BARRIER_SERIAL_THREAD;
        ZERO(pthread_mutex_unlock(&lock));
        if (r % 5 == 0)
            guest_pause_us(500);
    }
    return NULL;
}

int main(void)
{
    pthread_t t[THREADS];
    int sum = 0;

    ZERO(pthread_barrier_init(&barrier, NULL, THREADS));
    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, NULL);
    for (int i = 0; i < THREADS; i++)
        guest_join(t[i]);
    for (int r = 0; r < ROUNDS; r++) {
        CHECK(serial[r] == 1);
        sum += serial[r];
    }
    ZERO(pthread_barrier_destroy(&barrier));
    printf("rounds with one serial thread: %d\n", sum);
    return guest_ok();
}
