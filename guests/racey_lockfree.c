// Shows: a race of compare-and-swap loops and of plain stores beside them, without any lock: with turns its outcome is one.
// Breaks if: a turn passes on by a clock, or between two instructions of a retry loop that a copy does not repeat.
// kit: varies
// kit: stale a race, and beside a recording nobody takes turns
// kit: turns its threads do to each other what no lock orders
// kit: serial one thread at a time: its threads do to each other what no lock orders
#include "racey.h"

enum { THREADS = 4, ROUNDS = 4000, STEPS = 100 };

static unsigned top;

static void *race(void *arg)
{
    unsigned last = (unsigned)guest_num(arg) + 1;

    for (int round = 0; round < ROUNDS; round++) {
        for (int step = 0; step < STEPS; step++) {
            unsigned seen = __atomic_load_n(&top, __ATOMIC_ACQUIRE), mixed;
            do
                mixed = racey_step(racey_own, seen ^ last);
            while (!__atomic_compare_exchange_n(&top, &seen, mixed, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
            last = mixed + __atomic_fetch_add(&racey_own[mixed % RACEY_WORDS], 1, __ATOMIC_RELAXED);
        }
        sched_yield();
    }
    return guest_ptr((long)last);
}

int main(void)
{
    return racey_run(race, THREADS);
}
