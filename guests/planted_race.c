// Shows: a race that is really there: a flag and a counter read and written without a lock, as old servers do.
// Breaks if: the divergence that follows costs service; it may only cost protection until the next clone.
// kit: varies
// kit: allow diverged the race is planted
// kit: allow standby_lost the race is planted
// kit: allow unprotected the race is planted
// kit: no-kill a kill while no standby has caught up again is a loss by design
// kit: serial one thread at a time: its threads, or processes, do to each other what no lock orders
#include "guest.h"

enum { ROUNDS = 60 };

static volatile int flag;
static volatile long counter;

static void *writer(void *arg)
{
    (void)arg;
    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 0; i < 1000; i++)
            counter = counter + 1;
        flag = r;
        guest_pause_us(400);
    }
    return NULL;
}

int main(void)
{
    pthread_t t = guest_start(writer, NULL), second = guest_start(writer, NULL);
    long seen = 0;

    for (int r = 0; r < ROUNDS; r++) {
        /* The number of calls depends on the race, so a standby's log position does too. */
        for (int i = 0; i < 1 + (int)(counter % 5); i++)
            seen += getppid() > 0;
        guest_pause_us(300 + 10 * (flag % 3));
    }
    guest_join(t);
    guest_join(second);
    CHECK(seen >= ROUNDS && counter > 0);
    return guest_ok();
}
