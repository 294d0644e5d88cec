// Shows: two threads hand a turn to each other by pthread_kill and sigsuspend with different masks; the mask is as it was afterwards.
// Breaks if: a signal that came between unblocking and waiting is lost, or the mask of the wait stays in force in a copy.
#include "guest.h"
#include <signal.h>

enum { ROUNDS = 150 };

static pthread_t threads[2];
static __thread volatile sig_atomic_t turns;

static void on_turn(int signal)
{
    (void)signal;
    turns++;
}

static void *play(void *arg)
{
    long me = guest_num(arg);
    sigset_t wait, now;

    sigfillset(&wait);
    sigdelset(&wait, me ? SIGUSR2 : SIGUSR1);
    for (int r = 0; r < ROUNDS; r++) {
        if (me == 0)
            ZERO(pthread_kill(threads[1], SIGUSR2));
        while (turns <= r)
            FAILS(sigsuspend(&wait), EINTR);
        ZERO(pthread_sigmask(SIG_BLOCK, NULL, &now));
        CHECK(sigismember(&now, SIGUSR1) && sigismember(&now, SIGUSR2) && !sigismember(&now, SIGTERM));
        if (me == 1)
            ZERO(pthread_kill(threads[0], SIGUSR1));
        if (r % 3 == 0)
            guest_pause_us(700);
    }
    CHECK(turns == ROUNDS);
    return NULL;
}

int main(void)
{
    struct sigaction act = { .sa_handler = on_turn };
    pthread_barrier_t ready;
    sigset_t block;

    ZERO(pthread_barrier_init(&ready, NULL, 2));
    sigemptyset(&block);
    sigaddset(&block, SIGUSR1);
    sigaddset(&block, SIGUSR2);
    ZERO(pthread_sigmask(SIG_BLOCK, &block, NULL));
    CHECK(sigaction(SIGUSR1, &act, NULL) == 0 && sigaction(SIGUSR2, &act, NULL) == 0);
    threads[0] = pthread_self();
    threads[1] = guest_start(play, guest_ptr(1));
    play(guest_ptr(0));
    guest_join(threads[1]);
    return guest_ok();
}
