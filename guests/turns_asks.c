// Shows: threads behind an interpreter's lock: one that waits for long sets a flag, and whoever has the lock reads it without a lock.
// Breaks if: they take turns only once a copy has gone another way: a kill before that is noticed ends the program.
// kit: stale a race, and beside a recording nobody takes turns
// kit: serial one thread at a time: its threads do to each other what no lock orders
// kit: turns its threads do to each other what no lock orders
#define WAIT_US 1000
#include "interpreter_lock.h"

enum { THREADS = 3, ROUNDS = 20, STEPS = 300 };

static long counted;
static int ends[2];

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
