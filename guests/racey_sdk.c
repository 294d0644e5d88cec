// Shows: a race whose every access the program itself puts into the computed order, by sdk/understudy.h; natively the calls do nothing.
//        One more thread touches nothing of it, and says so: it is in no order, and does not change that of the others.
// Breaks if: two threads are between us_det_start and us_det_end at once, or a thread with few ticks holds the others up for ever.
// kit: varies
// kit: stale a race, and beside a recording nobody takes turns
// kit: turns its threads do to each other what no lock orders
// kit: serial one thread at a time: its threads do to each other what no lock orders
#include "racey.h"

#include "../sdk/understudy.h"

enum { THREADS = 3, ROUNDS = 1500 };

static void *race(void *arg)
{
    unsigned last = (unsigned)guest_num(arg) + 1, own = 0;

    for (int round = 0; round < ROUNDS; round++) {
        us_det_start();
        last = racey_step(racey_own, last);
        us_det_end();
        for (unsigned work = 0; work < 2000; work++)
            own = own * 5 + work;
        us_det_tick(last % 8);
    }
    return guest_ptr((long)(own & 1));
}

static void *apart(void *arg)
{
    unsigned own = 0;

    (void)arg;
    for (int round = 0; round < ROUNDS / 50; round++) {
        us_critical_begin();
        for (unsigned work = 0; work < 100000; work++)
            own = own * 5 + work;
        us_critical_end();
    }
    return guest_ptr((long)(own & 1));
}

int main(void)
{
    pthread_t threads[THREADS + 1];

    racey_begin(racey_own);
    for (int t = 0; t < THREADS; t++)
        threads[t] = guest_start(race, guest_ptr(t));
    threads[THREADS] = guest_start(apart, NULL);
    for (int t = 0; t <= THREADS; t++)
        guest_join(threads[t]);
    printf("signature %08x\n", racey_signature(racey_own));
    return guest_ok();
}
