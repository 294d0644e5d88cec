// Shows: threads behind an interpreter's lock: one that waits for long sets a flag, and whoever has the lock reads it without a lock.
// Breaks if: they take turns only once a copy has gone another way: a kill before that is noticed ends the program.
// kit: stale a race, and beside a recording nobody takes turns
// kit: serial one thread at a time: its threads do to each other what no lock orders
// kit: turns its threads do to each other what no lock orders
#include "guest.h"

enum { THREADS = 3, ROUNDS = 20, STEPS = 300 };

static long counted;
static volatile int asked;
static int ends[2];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t free_now = PTHREAD_COND_INITIALIZER;
static int taken;

static void take(void)
{
    ZERO(pthread_mutex_lock(&lock));
    while (taken) {
        struct timespec soon = guest_deadline(CLOCK_REALTIME, 1000);
        if (pthread_cond_timedwait(&free_now, &lock, &soon) == ETIMEDOUT && taken)
            asked = 1;
    }
    taken = 1;
    asked = 0;
    ZERO(pthread_mutex_unlock(&lock));
}

static void drop(void)
{
    ZERO(pthread_mutex_lock(&lock));
    taken = 0;
    ZERO(pthread_cond_signal(&free_now));
    ZERO(pthread_mutex_unlock(&lock));
}

/* Steps of a program: between two of them the interpreter looks at the flag. */
static void compute(void)
{
    for (int i = 0; i < STEPS; i++) {
        for (volatile int k = 0; k < 20000; k++)
            ;
        counted++;
        if (asked) {
            drop();
            take();
        }
    }
}

static void *run(void *arg)
{
    char byte = (char)guest_num(arg);

    for (int r = 0; r < ROUNDS; r++) {
        take();
        compute();
        drop();
        /* What another one had is read by the next one of these. */
        CHECK(write(ends[1], &byte, 1) == 1);
        CHECK(read(ends[0], &byte, 1) == 1);
        guest_pause_us(500);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];

    CHECK(pipe(ends) == 0);
    for (int t = 0; t < THREADS; t++)
        threads[t] = guest_start(run, guest_ptr(t));
    for (int t = 0; t < THREADS; t++)
        guest_join(threads[t]);
    CHECK(counted == (long)THREADS * ROUNDS * STEPS);
    printf("counted %ld\n", counted);
    return guest_ok();
}
