// Shows: waits with a time to end at, by futex calls of the program's own, in threads that take turns: each ends at its time, by
// whatever call comes back early.
// Breaks if: a thread that was asked to park, and is not any more, gets EINTR from every call from then on: it never sees the time.
// kit: allow unprotected it waits by futex calls of its own: turns begin with a new standby
#include "guest.h"
#include <linux/futex.h>
#include <sys/syscall.h>

enum { THREADS = 3, ROUNDS = 120, EARLY = 200 };

static uint32_t word;

static void *in_time(void *arg)
{
    for (int r = 0; r < ROUNDS; r++) {
        int64_t until = guest_now_ns(CLOCK_MONOTONIC) + 700000 + 100000 * guest_num(arg);
        struct timespec limit = { until / 1000000000, until % 1000000000 };
        int early = 0;

        while (syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, 0, &limit, NULL, FUTEX_BITSET_MATCH_ANY) != -1
               || errno != ETIMEDOUT)
            CHECK(++early < EARLY);
        CHECK(guest_now_ns(CLOCK_MONOTONIC) >= until);
    }
    return arg;
}

int main(void)
{
    pthread_t threads[THREADS];

    for (int t = 0; t < THREADS; t++)
        threads[t] = guest_start(in_time, guest_ptr(t));
    for (int t = 0; t < THREADS; t++)
        CHECK(guest_num(guest_join(threads[t])) == t);
    return guest_ok();
}
