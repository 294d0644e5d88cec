// Shows: a signal that has reached a thread which computes runs its handler before that thread blocks it: what is sent to the process,
//        by a timer or by another thread, and what is sent to the thread alone.
// Breaks if: the signal waits for the thread's next door, and that door is the one that blocks it: it comes late, or never.
// kit: allow unprotected a thread that is kept from the processor for 10 ms comes too late to a door for its signal
// kit: no-record a signal that is due in a thread that computes ends a recording
#include "guest.h"
#include <signal.h>

enum { ROUNDS = 150, KINDS = 3 };

static volatile sig_atomic_t handled;
static volatile int round_of, ready, left;
static pthread_t computes;

static void on_signal(int signal)
{
    (void)signal;
    handled++;
}

static int set_blocked(int how)
{
    sigset_t set;

    CHECK(sigemptyset(&set) == 0 && sigaddset(&set, SIGUSR1) == 0 && sigaddset(&set, SIGRTMIN + 3) == 0);
    return pthread_sigmask(how, &set, NULL);
}

/* Passes no door until it is told to. Then its first one blocks what has come. (How often each looks at the other's word is no part of
 * what the copies do.) */
static void *compute(void *arg)
{
    for (int r = 1; r <= ROUNDS; r++) {
        __atomic_store_n(&ready, r, __ATOMIC_SEQ_CST);
        while (__atomic_load_n(&round_of, __ATOMIC_SEQ_CST) != r)
            ;
        ZERO(set_blocked(SIG_BLOCK));
        CHECK(handled == r);
        ZERO(set_blocked(SIG_UNBLOCK));
        CHECK(handled == r);
    }
    __atomic_store_n(&left, 1, __ATOMIC_SEQ_CST);
    return arg;
}

int main(void)
{
    struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
    struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 3 };
    timer_t timer;

    CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && sigaction(SIGRTMIN + 3, &action, NULL) == 0);
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    computes = guest_start(compute, NULL);
    ZERO(set_blocked(SIG_BLOCK));
    for (int r = 1; r <= ROUNDS; r++) {
        struct itimerspec soon = { { 0, 0 }, { 0, 50000 } };

        while (__atomic_load_n(&ready, __ATOMIC_SEQ_CST) != r)
            ;
        switch (r % KINDS) {
        case 0:
            CHECK(kill(getpid(), SIGUSR1) == 0);
            break;
        case 1:
            CHECK(timer_settime(timer, 0, &soon, NULL) == 0);
            break;
        default:
            ZERO(pthread_kill(computes, SIGUSR1));
        }
        guest_pause_us(400);
        __atomic_store_n(&round_of, r, __ATOMIC_SEQ_CST);
    }
    guest_join(computes);
    CHECK(left && handled == ROUNDS);
    CHECK(timer_delete(timer) == 0);
    return guest_ok();
}
