// Shows: phases between barriers and a condition: who comes last, who is told to be serial and who is woken first is computed.
// Breaks if: the serial thread, or the order in which waiters go on, is the kernel's.
// kit: varies
// kit: turns who is the serial thread is computed
#include "racey.h"

enum { THREADS = 4, ROUNDS = 3000 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static unsigned tickets, turn;

static void *race(void *arg)
{
    unsigned last = (unsigned)guest_num(arg) + 1;

    for (int round = 0; round < ROUNDS; round++) {
        int serial = pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD;

        ZERO(pthread_mutex_lock(&lock));
        last = racey_step(racey_own, last + (unsigned)serial);
        unsigned mine = tickets++;
        while (turn + 2 < mine)
            ZERO(pthread_cond_wait(&turned, &lock));
        turn++;
        last = racey_step(racey_own, last);
        ZERO(pthread_cond_signal(&turned));
        ZERO(pthread_cond_broadcast(&turned));
        ZERO(pthread_mutex_unlock(&lock));
    }
    return NULL;
}

int main(void)
{
    ZERO(pthread_barrier_init(&barrier, NULL, THREADS));
    return racey_run(race, THREADS);
}
