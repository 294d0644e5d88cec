// Shows: a program that now and then makes a call which no standby can follow; it goes on, and so does its log.
// Breaks if: the new standby after such a call begins with a wrong table, clock or count.
// kit: allow unprotected unshare costs the standby, and a new one is made
// kit: no-record the recording ends at the call that cannot be replayed, and says so
#include "guest.h"
#include <sched.h>

enum { THREADS = 3, ROUNDS = 90, EVERY = 30 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t chain;
static long calls, bytes;

static void *run(void *arg)
{
    int ends[2];

    for (int r = 0; r < ROUNDS; r++) {
        CHECK(pipe2(ends, O_CLOEXEC) == 0);
        ZERO(pthread_mutex_lock(&lock));
        chain = guest_mix(chain);
        guest_write_all(ends[1], &chain, sizeof chain);
        uint64_t back;
        guest_read_all(ends[0], &back, sizeof back);
        CHECK(back == chain);
        bytes += (long)sizeof back;
        /* Of nothing: it does nothing, and says so. */
        if (guest_num(arg) == 0 && r % EVERY == EVERY / 2) {
            RETURNS(unshare(0), 0);
            calls++;
        }
        ZERO(pthread_mutex_unlock(&lock));
        CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
        guest_pause_us(1500);
    }
    return NULL;
}

int main(void)
{
    pthread_t t[THREADS];

    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, guest_ptr(i));
    for (int i = 0; i < THREADS; i++)
        guest_join(t[i]);
    printf("calls %ld, bytes %ld, chain %016lx\n", calls, bytes, (unsigned long)chain);
    return guest_ok();
}
