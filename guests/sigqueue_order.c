// Shows: signals with values that a program queues to itself and to its threads: in order of number, then of time; sigtimedwait, sigpending.
// Breaks if: a queued value is lost with the primary that it waited in, or comes behind a later one.
#include "guest.h"
#include <signal.h>

enum { ROUNDS = 40, BURST = 5 };

static sigset_t set, others_set;

static void take(const sigset_t *from, int number, int value)
{
    siginfo_t info;

    CHECK(sigwaitinfo(from, &info) == number && info.si_signo == number);
    CHECK(info.si_code == SI_QUEUE && info.si_value.sival_int == value && info.si_pid == getpid());
}

static void *other(void *arg)
{
    for (int r = 0; r < ROUNDS; r++)
        for (int i = 0; i < BURST; i++)
            take(&others_set, SIGRTMIN + 4, r * 10 + i);
    return arg;
}

int main(void)
{
    struct timespec none = { 0, 0 }, little = { 0, 300000 };
    siginfo_t info;
    sigset_t waits;

    sigemptyset(&set);
    for (int i = 1; i <= 4; i++)
        sigaddset(&set, SIGRTMIN + i);
    sigaddset(&set, SIGUSR1);
    ZERO(pthread_sigmask(SIG_BLOCK, &set, NULL));
    sigdelset(&set, SIGRTMIN + 4);
    sigemptyset(&others_set);
    sigaddset(&others_set, SIGRTMIN + 4);
    pthread_t t = guest_start(other, NULL);
    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 0; i < BURST; i++) {
            ZERO(pthread_sigqueue(t, SIGRTMIN + 4, (union sigval){ .sival_int = r * 10 + i }));
            for (int n = 3; n >= 1; n--)
                ZERO(pthread_sigqueue(pthread_self(), SIGRTMIN + n, (union sigval){ .sival_int = r * 100 + n * 10 + i }));
        }
        CHECK(raise(SIGUSR1) == 0 && raise(SIGUSR1) == 0);
        CHECK(sigpending(&waits) == 0 && sigismember(&waits, SIGUSR1) && sigismember(&waits, SIGRTMIN + 3));
        CHECK(sigwaitinfo(&set, &info) == SIGUSR1 && (info.si_code == SI_TKILL || info.si_code == SI_USER));
        for (int n = 1; n <= 3; n++)
            for (int i = 0; i < BURST; i++)
                take(&set, SIGRTMIN + n, r * 100 + n * 10 + i);
        FAILS(sigtimedwait(&set, NULL, &none), EAGAIN);
        FAILS(sigtimedwait(&set, NULL, &little), EAGAIN);
        CHECK(sigpending(&waits) == 0 && !sigismember(&waits, SIGUSR1) && !sigismember(&waits, SIGRTMIN + 1));
        guest_pause_us(1000);
    }
    guest_join(t);
    printf("values %d\n", ROUNDS * BURST * 4);
    return guest_ok();
}
