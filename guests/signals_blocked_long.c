// Shows: signals sent to itself wait behind the mask, of the process and of a thread, while copies come and go; then all are
//        taken, with their values, each once.
// Breaks if: a standby that is made while signals wait in the kernel does not know of them.
#include "guest.h"
#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <unistd.h>

enum { ROUNDS = 12, QUEUED = 3 };

static sem_t go, done;

static int next(const sigset_t *set, siginfo_t *info)
{
    struct timespec none = { 0, 0 };

    return sigtimedwait(set, info, &none);
}

static void *run(void *arg)
{
    sigset_t set;
    siginfo_t info;

    (void)arg;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    for (int r = 0; r < ROUNDS; r++) {
        while (sem_wait(&go) != 0)
            CHECK(errno == EINTR);
        CHECK(next(&set, &info) == SIGUSR2);
        FAILS(next(&set, &info), EAGAIN);
        CHECK(sem_post(&done) == 0);
    }
    return NULL;
}

int main(void)
{
    sigset_t all, set;
    siginfo_t info;
    long sum = 0;

    CHECK(sem_init(&go, 0, 0) == 0 && sem_init(&done, 0, 0) == 0);
    sigemptyset(&all);
    sigaddset(&all, SIGUSR1);
    sigaddset(&all, SIGUSR2);
    sigaddset(&all, SIGRTMIN + 2);
    ZERO(pthread_sigmask(SIG_BLOCK, &all, NULL));
    set = all;
    sigdelset(&set, SIGUSR2);
    pthread_t t = guest_start(run, NULL);
    for (int r = 0; r < ROUNDS; r++) {
        CHECK(kill(getpid(), SIGUSR1) == 0);
        ZERO(pthread_kill(t, SIGUSR2));
        for (int q = 0; q < QUEUED; q++)
            CHECK(sigqueue(getpid(), SIGRTMIN + 2, (union sigval){ .sival_int = r * QUEUED + q }) == 0);
        for (int pause = 0; pause < 10; pause++)
            guest_pause_us(500);
        CHECK(next(&set, &info) == SIGUSR1);
        for (int q = 0; q < QUEUED; q++) {
            CHECK(next(&set, &info) == SIGRTMIN + 2);
            RETURNS(info.si_value.sival_int, r * QUEUED + q);
            CHECK(info.si_code == SI_QUEUE && info.si_pid == getpid());
            sum += info.si_value.sival_int;
        }
        FAILS(next(&set, &info), EAGAIN);
        CHECK(sem_post(&go) == 0);
        while (sem_wait(&done) != 0)
            CHECK(errno == EINTR);
    }
    guest_join(t);
    printf("sum %ld\n", sum);
    return guest_ok();
}
