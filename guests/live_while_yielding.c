// Shows: a thread that waits for another one in a loop around sched_yield goes live with its copy, and gets its signals.
// Breaks if: a door that leaves no event never looks whether its copy has been promoted.
// kit: allow unprotected the loop is interrupted where no copy can find it
// kit: no-record a signal is delivered between two doors, where no replay finds it again: the recording ends there, and says so
#include "guest.h"
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>

enum { ROUNDS = 12, CALLS = 400 };

static volatile sig_atomic_t caught;
static sem_t handled;
static pthread_t spinner;

static void handler(int signal)
{
    (void)signal;
    caught++;
    sem_post(&handled);
}

static void *work(void *unused)
{
    (void)unused;
    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 0; i < CALLS; i++)
            CHECK(getppid() > 0);
        CHECK(pthread_kill(spinner, SIGUSR1) == 0);
        // Its handler runs there before the next one is sent.
        CHECK(sem_wait(&handled) == 0);
        printf("round %d\n", r);
    }
    return NULL;
}

int main(void)
{
    struct sigaction action = { .sa_handler = handler };
    pthread_t worker;

    setvbuf(stdout, NULL, _IONBF, 0);
    CHECK(sem_init(&handled, 0, 0) == 0);
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    spinner = pthread_self();
    CHECK(pthread_create(&worker, NULL, work, NULL) == 0);
    while (caught < ROUNDS)
        sched_yield();
    CHECK(pthread_join(worker, NULL) == 0);
    return guest_ok();
}
