// Shows: signals blocked everywhere and taken by sigwait, sigwaitinfo (with a queued value) and sigtimedwait.
// Breaks if: a signal aimed at the group is delivered to a standby, or one taken by a dead primary is lost.
#include "guest.h"
#include <signal.h>

enum { ROUNDS = 60 };

static sigset_t set;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t answered = PTHREAD_COND_INITIALIZER;
static int taken;
static long values;

static void *taker(void *arg)
{
    (void)arg;
    for (int r = 0; r < ROUNDS; r++) {
        int signal = 0;
        siginfo_t info;
        if (r % 2 == 0) {
            ZERO(sigwait(&set, &signal));
        } else {
            signal = sigwaitinfo(&set, &info);
            CHECK(info.si_value.sival_int == r);
            values += info.si_value.sival_int;
        }
        CHECK(signal == (r % 2 == 0 ? SIGUSR1 : SIGRTMIN + 3));
        ZERO(pthread_mutex_lock(&lock));
        taken++;
        ZERO(pthread_cond_signal(&answered));
        ZERO(pthread_mutex_unlock(&lock));
    }
    struct timespec soon = { 0, 500000 };
    FAILS(sigtimedwait(&set, NULL, &soon), EAGAIN);
    return NULL;
}

int main(void)
{
    CHECK(sigemptyset(&set) == 0);
    CHECK(sigaddset(&set, SIGUSR1) == 0 && sigaddset(&set, SIGRTMIN + 3) == 0);
    ZERO(pthread_sigmask(SIG_BLOCK, &set, NULL));
    pthread_t t = guest_start(taker, NULL);
    for (int r = 0; r < ROUNDS; r++) {
        union sigval value = { .sival_int = r };
        if (r % 4 == 0)
            CHECK(kill(getpid(), SIGUSR1) == 0);
        else if (r % 4 == 2)
            ZERO(pthread_kill(t, SIGUSR1));
        else if (r % 4 == 1)
            CHECK(sigqueue(getpid(), SIGRTMIN + 3, value) == 0);
        else
            ZERO(pthread_sigqueue(t, SIGRTMIN + 3, value));
        ZERO(pthread_mutex_lock(&lock));
        while (taken != r + 1)
            ZERO(pthread_cond_wait(&answered, &lock));
        ZERO(pthread_mutex_unlock(&lock));
        guest_pause_us(300);
    }
    guest_join(t);
    printf("taken %d, values %ld\n", taken, values);
    return guest_ok();
}
