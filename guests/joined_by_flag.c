// Shows: a program that reads without a lock which of its threads are done, and joins those: a race in the program.
// Breaks if: a thread that one copy has joined and the other has not goes unnoticed: its slot is never free there, the
// standby waits for ever and is called protected.
// kit: allow diverged the race is the point: the standby has to find out
// kit: allow unprotected a divergence ends protection
// kit: no-kill a kill between the divergence and the next standby ends the program
// kit: no-record a race: the replay goes another way
#include "guest.h"
#include <stdatomic.h>

enum { THREADS = 4, ROUNDS = 400 };

static _Atomic int done[THREADS];

static void *run(void *arg)
{
    guest_pause_us(20);
    atomic_store(&done[guest_num(arg)], 1);
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    int lives[THREADS] = { 0 }, made = 0, joined = 0;

    while (joined < ROUNDS) {
        for (int i = 0; i < THREADS; i++) {
            if (!lives[i] && made < ROUNDS) {
                atomic_store(&done[i], 0);
                threads[i] = guest_start(run, guest_ptr(i));
                lives[i] = 1;
                made++;
            } else if (lives[i] && atomic_load(&done[i])) {
                guest_join(threads[i]);
                lives[i] = 0;
                joined++;
            }
        }
        guest_pause_us(50);
    }
    printf("joined %d\n", joined);
    return guest_ok();
}
