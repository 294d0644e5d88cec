// Shows: threads that race for what comes through connections to themselves: who reads next is computed, as far as the bytes are there.
// Breaks if: a read whose bytes are there leaves the order, or a lock behind it is given to who comes first.
// kit: varies
// kit: turns who reads next is computed
#include "net.h"
#include "racey.h"

enum { THREADS = 4, ROUNDS = 500 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int pair[2];

/* Under the lock a word is put into the connection and the one before it is taken out: its bytes are there. */
static void *race(void *arg)
{
    unsigned last = (unsigned)guest_num(arg) + 1, seen;

    for (int round = 0; round < ROUNDS; round++) {
        ZERO(pthread_mutex_lock(&lock));
        guest_write_all(pair[0], &last, sizeof last);
        guest_read_all(pair[1], &seen, sizeof seen);
        last = racey_step(racey_own, last + seen);
        ZERO(pthread_mutex_unlock(&lock));
    }
    return NULL;
}

int main(void)
{
    unsigned first = 7;

    net_pair(pair);
    guest_write_all(pair[0], &first, sizeof first);
    return racey_run(race, THREADS);
}
