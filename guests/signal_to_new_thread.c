// Shows: pthread_kill right behind pthread_create reaches that thread and no other, before or while it begins.
// Breaks if: a signal that finds a thread in its first instructions is sent on to the process.
#include "guest.h"
#include <signal.h>

enum { ROUNDS = 120 };

static __thread volatile sig_atomic_t caught;
static volatile sig_atomic_t strays;
static pthread_t main_thread;

static void handler(int signal)
{
    (void)signal;
    if (pthread_equal(pthread_self(), main_thread))
        strays++;
    caught++;
}

static void *run(void *arg)
{
    for (int i = 0; i < 20000 && caught == 0; i++)
        guest_pause_us(100);
    CHECK(caught == 1);
    return arg;
}

int main(void)
{
    struct sigaction action = { .sa_handler = handler };

    main_thread = pthread_self();
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        pthread_t thread = guest_start(run, NULL);

        ZERO(pthread_kill(thread, SIGUSR1));
        guest_join(thread);
        CHECK(strays == 0);
    }
    return guest_ok();
}
