// Shows: a race that makes the copies differ again and again costs protection for a while, and no result.
// Breaks if: a standby that has diverged is promoted, or the next one begins from anything but the primary.
// kit: allow diverged the race is planted
// kit: allow standby_lost the race is planted
// kit: allow unprotected the race is planted
// kit: serial one thread at a time: its threads, or processes, do to each other what no lock orders
#include "guest.h"

enum { ROUNDS = 100, THREADS = 2 };

static volatile long racing;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long guarded;

/* How many calls it makes depends on the race; what is counted under the lock does not. */
static void *run(void *arg)
{
    (void)arg;
    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 0; i < 200; i++)
            racing = racing + 1;
        if (r % 25 == 24)
            for (long i = racing % 7; i > 0; i--)
                CHECK(getppid() > 0);
        ZERO(pthread_mutex_lock(&lock));
        guarded++;
        ZERO(pthread_mutex_unlock(&lock));
        guest_pause_us(1500);
    }
    return NULL;
}

int main(void)
{
    pthread_t t[THREADS];

    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, NULL);
    for (int i = 0; i < THREADS; i++)
        guest_join(t[i]);
    printf("guarded %ld\n", guarded);
    return guest_ok();
}
