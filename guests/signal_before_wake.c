// Shows: a thread sends a signal to another that waits, and wakes it; who has been woken has had the signal.
// Breaks if: a lock's door returns with a signal still queued that had come before the wake.
#include "guest.h"
#include <errno.h>
#include <semaphore.h>
#include <signal.h>

enum { ROUNDS = 120 };

static pthread_t waiter;
static sem_t begun, woken;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int turn, handled;

static void handler(int signal)
{
    (void)signal;
    handled++;
}

static void wait_for(sem_t *sem)
{
    while (sem_wait(sem) != 0)
        CHECK(errno == EINTR);
}

static void *wake(void *arg)
{
    (void)arg;
    for (int i = 1; i <= ROUNDS; i++) {
        wait_for(&begun);
        /* It sleeps by now: one that runs is told of signals a little later, natively as well. */
        guest_pause_us(150);
        ZERO(pthread_kill(waiter, SIGUSR1));
        if (i % 2) {
            CHECK(sem_post(&woken) == 0);
        } else {
            ZERO(pthread_mutex_lock(&lock));
            turn = i;
            ZERO(pthread_cond_signal(&cond));
            ZERO(pthread_mutex_unlock(&lock));
        }
    }
    return NULL;
}

int main(void)
{
    struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART };

    CHECK(sem_init(&begun, 0, 0) == 0 && sem_init(&woken, 0, 0) == 0);
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    waiter = pthread_self();
    pthread_t t = guest_start(wake, NULL);
    for (int i = 1; i <= ROUNDS; i++) {
        CHECK(sem_post(&begun) == 0);
        if (i % 2) {
            wait_for(&woken);
        } else {
            ZERO(pthread_mutex_lock(&lock));
            while (turn < i)
                ZERO(pthread_cond_wait(&cond, &lock));
            ZERO(pthread_mutex_unlock(&lock));
        }
        RETURNS(handled, i);
    }
    guest_join(t);
    printf("signals %d\n", handled);
    return guest_ok();
}
