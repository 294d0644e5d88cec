// Shows: a one-shot timer set by one thread whose signal another one takes, in strict turns: each setting is heard once.
// Breaks if: a timer_settime or setitimer in doubt, whose signal has been taken since, is made again and heard again.
#include "guest.h"
#include <semaphore.h>
#include <signal.h>
#include <sys/time.h>

enum { PAIRS = 3, ROUNDS = 1500 };

struct pair {
    int signal, is_set;
    timer_t timer;
    pthread_mutex_t lock;
    sem_t heard;
};

static int set_mark(struct pair *p, int value)
{
    ZERO(pthread_mutex_lock(&p->lock));
    int before = p->is_set;
    p->is_set = value;
    ZERO(pthread_mutex_unlock(&p->lock));
    return before;
}

static void set_timer(const struct pair *p)
{
    struct itimerspec at_once = { { 0, 0 }, { 0, 1 } };
    struct itimerval soon = { { 0, 0 }, { 0, 1 } };

    if (p->signal == SIGALRM)
        CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    else
        CHECK(timer_settime(p->timer, 0, &at_once, NULL) == 0);
}

static void *set(void *arg)
{
    struct pair *p = (struct pair *)arg;

    for (int r = 0; r < ROUNDS; r++) {
        CHECK(!set_mark(p, 1));
        set_timer(p);
        while (sem_wait(&p->heard) != 0)
            CHECK(errno == EINTR);
    }
    return NULL;
}

static void *hear(void *arg)
{
    struct pair *p = (struct pair *)arg;
    sigset_t own;
    siginfo_t info;

    CHECK(sigemptyset(&own) == 0 && sigaddset(&own, p->signal) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        while (sigwaitinfo(&own, &info) != p->signal)
            CHECK(errno == EINTR);
        CHECK(set_mark(p, 0));
        CHECK(sem_post(&p->heard) == 0);
    }
    return NULL;
}

int main(void)
{
    struct pair pairs[PAIRS];
    pthread_t threads[2 * PAIRS];
    struct timespec moment = { 0, 2000000 };
    sigset_t all;

    memset(pairs, 0, sizeof pairs);
    CHECK(sigemptyset(&all) == 0);
    for (int i = 0; i < PAIRS; i++) {
        struct pair *p = &pairs[i];
        struct sigevent event = { .sigev_notify = SIGEV_SIGNAL };
        p->signal = i == 0 ? SIGALRM : SIGRTMIN + i;
        event.sigev_signo = p->signal;
        CHECK(sigaddset(&all, p->signal) == 0);
        CHECK(i == 0 || timer_create(CLOCK_MONOTONIC, &event, &p->timer) == 0);
        CHECK(sem_init(&p->heard, 0, 0) == 0);
        ZERO(pthread_mutex_init(&p->lock, NULL));
    }
    ZERO(pthread_sigmask(SIG_BLOCK, &all, NULL));
    for (int i = 0; i < PAIRS; i++) {
        threads[2 * i] = guest_start(hear, &pairs[i]);
        threads[2 * i + 1] = guest_start(set, &pairs[i]);
    }
    for (int i = 0; i < 2 * PAIRS; i++)
        guest_join(threads[i]);
    FAILS(sigtimedwait(&all, NULL, &moment), EAGAIN);
    printf("heard %d\n", PAIRS * ROUNDS);
    return guest_ok();
}
