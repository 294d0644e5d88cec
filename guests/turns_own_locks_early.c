// Shows: a program whose locks are its own, atomics and futex calls: its standby is made anew for threads that take turns.
// Breaks if: its threads take turns only once a standby has gone another way, which a kill may meet first.
// kit: varies
// kit: allow unprotected turns begin with a new standby
// kit: stale a race, and beside a recording nobody takes turns
// kit: serial one thread at a time: its threads do to each other what no lock orders
// kit: races its threads do to each other what no door orders

/* Nothing in the text says what the calls do, as in a library that the program is linked with. */
static volatile int unseen = 128; /* FUTEX_PRIVATE_FLAG */
#define OPERATION(what) ((what) | unseen)
#include "own_locks.h"

enum { ROUNDS = 200 };

static atomic_int go;

static void *run(void *arg)
{
    /* What is raced for before the first turns would be raced for without. */
    while (!atomic_load(&go)) {
        struct timespec soon = { .tv_nsec = 1000000 };
        wait_for(&go, 0, &soon);
    }
    race(ROUNDS);
    return arg;
}

int main(void)
{
    pthread_t threads[THREADS];

    CHECK(pipe(ends) == 0);
    for (int t = 0; t < THREADS; t++)
        threads[t] = guest_start(run, guest_ptr(t));
    for (int i = 0; i < 200; i++)
        guest_pause_us(1000);
    atomic_store(&go, 1);
    wake(&go, THREADS);
    for (int t = 0; t < THREADS; t++)
        guest_join(threads[t]);
    CHECK(counter == (long)THREADS * ROUNDS * 150);
    return guest_ok();
}
