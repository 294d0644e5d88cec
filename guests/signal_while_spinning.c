// Shows: a thread that waits for a spin lock, alone or with others, runs its handlers, and the handler may give the lock back.
// Breaks if: a loop of the runtime's own waits for what the program holds, and delivers nothing meanwhile.
// kit: allow unprotected the first loop is interrupted where no log has an event
// kit: no-kill protection ends with the signal, and a kill behind it is a death like any other
// kit: no-record a signal is delivered between two doors, where no replay finds it again: the recording ends there, and says so
#include "guest.h"
#include <signal.h>
#include <sys/time.h>

enum { ROUNDS = 6 };

static pthread_spinlock_t lock;
static volatile sig_atomic_t caught;

static void give_back(int signal)
{
    (void)signal;
    caught++;
    ZERO(pthread_spin_unlock(&lock));
}

static void *wait_for_it(void *arg)
{
    struct itimerval soon = { { 0, 0 }, { 0, 3000 } };

    for (int r = 0; r < ROUNDS; r++) {
        ZERO(pthread_spin_lock(&lock));
        CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
        ZERO(pthread_spin_lock(&lock));
        ZERO(pthread_spin_unlock(&lock));
    }
    return arg;
}

int main(void)
{
    struct sigaction action = { .sa_handler = give_back };
    sigset_t set;

    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    ZERO(pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE));
    wait_for_it(NULL);
    CHECK(sigemptyset(&set) == 0 && sigaddset(&set, SIGALRM) == 0);
    pthread_t t = guest_start(wait_for_it, NULL);
    ZERO(pthread_sigmask(SIG_BLOCK, &set, NULL));
    guest_join(t);
    printf("caught %d\n", (int)caught);
    return guest_ok();
}
