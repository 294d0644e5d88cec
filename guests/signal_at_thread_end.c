// Shows: a signal of the process's that a thread has taken is handled though that thread ends behind it, by a return, pthread_exit or cancellation.
// Breaks if: what waits for a thread's next door ends with the thread.
// kit: allow unprotected a signal that a failover raises again is delivered at once where its thread computes, and no log has that
// kit: no-record a failover beside a recording delivers the signal where no replay finds it again: the recording ends there, and says so
#include "guest.h"
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>

enum { ROUNDS = 60 };

static atomic_int caught;
static volatile uint64_t result;
static sem_t is_up;
static sigset_t set;

static void handler(int signal)
{
    (void)signal;
    atomic_fetch_add(&caught, 1);
}

static void *worker(void *arg)
{
    ZERO(pthread_sigmask(SIG_UNBLOCK, &set, NULL));
    CHECK(sem_post(&is_up) == 0);
    /* It comes meanwhile, and then no call comes before the end. */
    result = guest_work(1, 200000);
    if (guest_num(arg) % 3 == 1)
        pthread_exit(arg);
    if (guest_num(arg) % 3 == 2) {
        ZERO(pthread_cancel(pthread_self()));
        pthread_testcancel();
    }
    return arg;
}

int main(void)
{
    struct sigaction action = { .sa_handler = handler };
    int taken = 0;

    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(sigemptyset(&set) == 0 && sigaddset(&set, SIGUSR1) == 0);
    ZERO(pthread_sigmask(SIG_BLOCK, &set, NULL));
    CHECK(sem_init(&is_up, 0, 0) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        sigset_t waiting;
        int signal;

        pthread_t t = guest_start(worker, guest_ptr(r));
        CHECK(sem_wait(&is_up) == 0);
        /* The worker alone lets it through. */
        CHECK(kill(getpid(), SIGUSR1) == 0);
        guest_join(t);
        /* It may have come too late for that: then the process has it still. */
        CHECK(sigpending(&waiting) == 0);
        if (sigismember(&waiting, SIGUSR1)) {
            ZERO(sigwait(&set, &signal));
            taken++;
        }
        RETURNS(atomic_load(&caught) + taken, r + 1);
        guest_pause_us(500);
    }
    return guest_ok();
}
