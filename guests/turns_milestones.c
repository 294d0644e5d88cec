// Shows: threads behind an interpreter's lock that compute for long, and meanwhile do nothing but look at its flag.
// Breaks if: one that computes is passed over: whoever asks it by the flag then does so at its side, and a copy sees that elsewhere.
// kit: stale a race, and beside a recording nobody takes turns
// kit: serial one thread at a time: its threads do to each other what no lock orders
// kit: races its threads do to each other what no lock orders
// kit: allow unprotected turns begin at the first question, and milestones are made behind that: each with a new standby
// kit: allow standby_lost a kill may meet the copy that is given up for the next one
#define WAIT_US 1000
#include "computing.h"
#include "interpreter_lock.h"

enum { THREADS = 3, STEPS = 200000, FIRST = 20 };

static int ends[2];
static long counted, questions;
static unsigned long sums[THREADS];

static void *run(void *arg)
{
    long self = guest_num(arg);
    int seen;

    take();
    for (int i = 0; i < STEPS; i++) {
        sums[self] = step(sums[self]);
        counted++;
        if (asked) {
            /* Where it was asked is seen outside of it: not the first times, which make its threads take turns. */
            if (questions++ > FIRST) {
                CHECK(write(ends[1], &i, sizeof i) == sizeof i);
                CHECK(read(ends[0], &seen, sizeof seen) == sizeof seen && seen == i);
            }
            drop();
            take();
        }
    }
    drop();
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];

    CHECK(pipe(ends) == 0);
    for (long t = 0; t < THREADS; t++) {
        sums[t] = (unsigned long)t;
        threads[t] = guest_start(run, guest_ptr(t));
    }
    for (int t = 0; t < THREADS; t++)
        guest_join(threads[t]);
    CHECK(counted == (long)THREADS * STEPS);
    printf("counted %ld, %lx %lx %lx\n", counted, sums[0], sums[1], sums[2]);
    return guest_ok();
}
