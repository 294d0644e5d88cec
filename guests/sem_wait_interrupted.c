// Shows: a handler ends sem_wait with EINTR unless it has SA_RESTART, sem_timedwait always, and what the handler itself
// posts is there to be taken.
// Breaks if: a wait goes on after every handler; or the standby's thread, which was not interrupted, sleeps for ever.
#include "guest.h"
#include <semaphore.h>
#include <signal.h>
#include <sys/time.h>

enum { ROUNDS = 14 };

static sem_t semaphore;
static volatile sig_atomic_t posts;

static void handler(int signal)
{
    (void)signal;
    if (posts)
        CHECK(sem_post(&semaphore) == 0);
}

/* Again and again: one that comes before the wait has begun does not end it. 0 for no more. */
static void alarm_every(long us)
{
    struct itimerval timer = { { 0, us }, { 0, us } };

    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
}

static void round_of(int flags)
{
    struct sigaction action = { .sa_handler = handler, .sa_flags = flags };
    struct timespec far = guest_deadline(CLOCK_REALTIME, 60 * 1000000L);

    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    posts = 0;
    alarm_every(3000);
    FAILS(sem_timedwait(&semaphore, &far), EINTR);
    if (flags == 0) {
        alarm_every(3000);
        FAILS(sem_wait(&semaphore), EINTR);
    }
    posts = 1;
    alarm_every(3000);
    while (sem_wait(&semaphore) != 0)
        CHECK(errno == EINTR && flags == 0);
    alarm_every(0);
    posts = 0;
    while (sem_trywait(&semaphore) == 0)
        ;
}

static void *run(void *arg)
{
    for (int r = 0; r < ROUNDS; r++)
        round_of(r % 2 == 0 ? 0 : SA_RESTART);
    return arg;
}

int main(void)
{
    sigset_t alarm_only;

    CHECK(sem_init(&semaphore, 0, 0) == 0);
    /* First with one thread, then in a second one. */
    run(NULL);
    pthread_t thread = guest_start(run, NULL);
    CHECK(sigemptyset(&alarm_only) == 0 && sigaddset(&alarm_only, SIGALRM) == 0);
    ZERO(pthread_sigmask(SIG_BLOCK, &alarm_only, NULL));
    guest_join(thread);
    return guest_ok();
}
