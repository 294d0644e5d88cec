// Shows: a program whose locks are its own, atomics and futex calls, and whose threads race for them from their first moment on.
// Breaks if: its threads take turns only once some of them have waited: a kill before that meets a copy that has gone another way.
// kit: varies
// kit: stale a race, and beside a recording nobody takes turns
// kit: serial one thread at a time: its threads do to each other what no lock orders
// kit: races its threads do to each other what no door orders

/* As the library of a language that is linked into each program: its text says that these are locks of the program's own. */
#define OPERATION(what) ((what) | FUTEX_PRIVATE_FLAG)
#include "own_locks.h"

enum { ROUNDS = 60 };

static void *run(void *arg)
{
    race(ROUNDS);
    return arg;
}

int main(void)
{
    CHECK(pipe(ends) == 0);
    guest_run(run, THREADS);
    CHECK(counter == (long)THREADS * ROUNDS * 150);
    return guest_ok();
}
