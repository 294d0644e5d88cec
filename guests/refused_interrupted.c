// Shows: a call that no standby can follow, made over and over while signals come and new standbys are made.
// Breaks if: a signal, the guest's or the runtime's own, that comes before such a call makes it fail with EINTR.
// kit: allow unprotected unshare costs the standby, and a new one is made
// kit: no-record the recording ends at the call that cannot be replayed, and says so
#include "guest.h"
#include <errno.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>

enum { CALLS = 20000, SIGNALS = 500 };

static pthread_t caller;
static sem_t handled;
static int count;

static void handler(int signal)
{
    (void)signal;
    count++;
    CHECK(sem_post(&handled) == 0);
}

static void *disturb(void *arg)
{
    (void)arg;
    for (int i = 0; i < SIGNALS; i++) {
        ZERO(pthread_kill(caller, SIGUSR1));
        while (sem_wait(&handled) != 0)
            CHECK(errno == EINTR);
    }
    return NULL;
}

int main(void)
{
    struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART };

    CHECK(sem_init(&handled, 0, 0) == 0);
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    caller = pthread_self();
    pthread_t t = guest_start(disturb, NULL);
    /* Of nothing: it does nothing, and says so. */
    for (int i = 0; i < CALLS || count < SIGNALS; i++)
        RETURNS(unshare(0), 0);
    guest_join(t);
    printf("signals %d\n", count);
    return guest_ok();
}
