// Shows: a thread that does nothing but take a free lock and give it back is told of a signal within some of these.
// Breaks if: the short way to a lock, of a process without a standby too, does not look for signals that wait.
#include "guest.h"
#include <semaphore.h>
#include <signal.h>

enum { ROUNDS = 40, TAKEN_MAX = 20000 };

static pthread_t taker;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t readers = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t spin;
static sem_t places;
static volatile sig_atomic_t handled;
static int sent, seen;

static void handler(int signal)
{
    (void)signal;
    handled++;
}

static int read_locked(const int *of)
{
    ZERO(pthread_mutex_lock(&lock));
    int value = *of;
    ZERO(pthread_mutex_unlock(&lock));
    return value;
}

/* Takes a free lock of the round's kind and gives it back. */
static void pass(int round)
{
    switch (round % 4) {
    case 0:
        ZERO(pthread_mutex_lock(&lock));
        ZERO(pthread_mutex_unlock(&lock));
        break;
    case 1:
        ZERO(pthread_rwlock_rdlock(&readers));
        ZERO(pthread_rwlock_unlock(&readers));
        break;
    case 2:
        ZERO(pthread_spin_lock(&spin));
        ZERO(pthread_spin_unlock(&spin));
        break;
    default:
        CHECK(sem_wait(&places) == 0 && sem_post(&places) == 0);
    }
}

static void set_locked(int *to, int value)
{
    ZERO(pthread_mutex_lock(&lock));
    *to = value;
    ZERO(pthread_mutex_unlock(&lock));
}

static void *send_all(void *arg)
{
    (void)arg;
    for (int i = 1; i <= ROUNDS; i++) {
        guest_pause_us(100);
        ZERO(pthread_kill(taker, SIGUSR1));
        set_locked(&sent, i);
        while (read_locked(&seen) < i)
            guest_pause_us(50);
    }
    return NULL;
}

int main(void)
{
    struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART };

    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    ZERO(pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE));
    CHECK(sem_init(&places, 0, 1) == 0);
    taker = pthread_self();
    pthread_t t = guest_start(send_all, NULL);
    for (int i = 1; i <= ROUNDS; i++) {
        while (read_locked(&sent) < i) {
        }
        /* The kernel's word to another processor takes some microseconds, natively as well. */
        for (int taken = 0; handled < i && taken < TAKEN_MAX; taken++)
            pass(i);
        RETURNS(handled, i);
        set_locked(&seen, i);
    }
    guest_join(t);
    printf("signals %d\n", handled);
    return guest_ok();
}
