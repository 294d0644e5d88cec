// Shows: threads race with trylock; a success excludes, a failure is real, and every unit of work is done once.
// Breaks if: a success is replayed by trylock, although the last holder's unlock has not happened in the standby yet.
#include "guest.h"

enum { THREADS = 4, SLOTS = 8, UNITS = 9000 };

static struct {
    pthread_mutex_t lock;
    int busy;
    long work;
} slot[SLOTS];

static void *run(void *arg)
{
    uint64_t x = (uint64_t)guest_num(arg);

    for (int done = 0; done < UNITS; ) {
        x = guest_mix(x);
        unsigned s = x % SLOTS;
        int rc = pthread_mutex_trylock(&slot[s].lock);
        CHECK(rc == 0 || rc == EBUSY);
        if (rc == EBUSY)
            continue;
        CHECK(slot[s].busy == 0);
        slot[s].busy = 1;
        slot[s].work++;
        x = guest_work(x, 50);
        slot[s].busy = 0;
        ZERO(pthread_mutex_unlock(&slot[s].lock));
        if (++done % 150 == 0)
            guest_pause_us(300);
    }
    return NULL;
}

int main(void)
{
    pthread_t t[THREADS];
    long sum = 0;

    for (int i = 0; i < SLOTS; i++)
        ZERO(pthread_mutex_init(&slot[i].lock, NULL));
    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, guest_ptr(i + 1));
    for (int i = 0; i < THREADS; i++)
        guest_join(t[i]);
    for (int i = 0; i < SLOTS; i++)
        sum += slot[i].work;
    printf("work %ld\n", sum);
    CHECK(sum == (long)THREADS * UNITS);
    return guest_ok();
}
