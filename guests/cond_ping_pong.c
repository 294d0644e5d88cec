// Shows: pthread_cond_wait and signal hand a turn around a circle of threads, each step exactly once.
// Breaks if: a signal is lost in the primary, or the standby blocks on its real condition variable.
#include "guest.h"

enum { THREADS = 4, ROUNDS = 150 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turned[THREADS];
static int turn;
static uint64_t trail = 1;

static void *run(void *arg)
{
    int me = (int)guest_num(arg);

    for (int r = 0; r < ROUNDS; r++) {
        ZERO(pthread_mutex_lock(&lock));
        while (turn != me)
            ZERO(pthread_cond_wait(&turned[me], &lock));
        trail = guest_mix(trail ^ (uint64_t)me);
        turn = (me + 1) % THREADS;
        ZERO(pthread_cond_signal(&turned[turn]));
        ZERO(pthread_mutex_unlock(&lock));
        if (r % 8 == me)
            guest_pause_us(400);
    }
    return NULL;
}

int main(void)
{
    pthread_t t[THREADS];

    for (int i = 0; i < THREADS; i++)
        ZERO(pthread_cond_init(&turned[i], NULL));
    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, guest_ptr(i));
    for (int i = 0; i < THREADS; i++)
        guest_join(t[i]);
    printf("trail %016lx\n", (unsigned long)trail);
    return guest_ok();
}
