// Shows: a race for one lock: who gets it next decides the outcome, which is the same in every run where the order is computed.
// Breaks if: a lock is given to who comes first, or a waiter's place depends on when it fell asleep.
// kit: varies
// kit: turns who gets the lock is computed
#include "racey.h"

enum { THREADS = 4, ROUNDS = 4000, STEPS = 3 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *race(void *arg)
{
    unsigned last = (unsigned)guest_num(arg) + 1, own = 0;

    for (int round = 0; round < ROUNDS; round++) {
        ZERO(pthread_mutex_lock(&lock));
        for (int step = 0; step < STEPS; step++)
            last = racey_step(racey_own, last);
        ZERO(pthread_mutex_unlock(&lock));
        for (unsigned work = 0; work < last % 64; work++)
            own = own * 5 + work;
    }
    return guest_ptr((long)(own & 1));
}

int main(void)
{
    return racey_run(race, THREADS);
}
