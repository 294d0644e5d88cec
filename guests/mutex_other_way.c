// Shows: a thread that a race sends to one of two mutexes; whichever it is, the program goes on.
// Breaks if: a standby's thread waits at the other mutex for a turn that never comes, and the standby is taken for one that follows.
// kit: turns a race decides which mutex is locked
// kit: no-record a race decides which mutex is locked
// kit: stale a race decides which mutex is locked
#include "guest.h"

enum { ROUNDS = 40000, PARTS = 20 };

static pthread_mutex_t locks[2] = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER };
static volatile int turn;
static long counts[2];

static void *flip(void *arg)
{
    for (int i = 0; i < ROUNDS; i++) {
        turn ^= 1;
        if (i % (ROUNDS / PARTS) == 0)
            guest_pause_us(500);
    }
    return arg;
}

static void *follow(void *arg)
{
    for (int i = 0; i < ROUNDS; i++) {
        int which = turn & 1;
        ZERO(pthread_mutex_lock(&locks[which]));
        counts[which]++;
        ZERO(pthread_mutex_unlock(&locks[which]));
        if (i % (ROUNDS / PARTS) == 0)
            guest_pause_us(500);
    }
    return arg;
}

int main(void)
{
    pthread_t t[3] = { guest_start(flip, NULL), guest_start(follow, NULL), guest_start(follow, NULL) };

    for (int i = 0; i < 3; i++)
        guest_join(t[i]);
    CHECK(counts[0] + counts[1] == 2L * ROUNDS);
    return guest_ok();
}
