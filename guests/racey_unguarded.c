// Shows: a race without any lock: with turns that are computed its outcome is the same in every run, with kills too.
// Breaks if: a turn passes on by a clock, or a lock or the end of a thread is seen when the kernel says so.
// kit: varies
// kit: stale a race, and beside a recording nobody takes turns
// kit: turns its threads do to each other what no lock orders
// kit: serial one thread at a time: its threads do to each other what no lock orders
#include "racey.h"

enum { THREADS = 4, ROUNDS = 6000, STEPS = 500 };

static void *race(void *arg)
{
    unsigned last = (unsigned)guest_num(arg) + 1;

    for (int round = 0; round < ROUNDS; round++) {
        for (int step = 0; step < STEPS; step++)
            last = racey_step(racey_own, last);
        sched_yield();
    }
    return guest_ptr((long)last);
}

int main(void)
{
    return racey_run(race, THREADS);
}
