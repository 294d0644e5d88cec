// Shows: timers and waits of a thousand years neither fire nor end.
// Breaks if: what is left of them is computed in numbers that are too small for them, at a clone or at a failover.
#include "guest.h"
#include <signal.h>
#include <sys/time.h>

enum { ROUNDS = 80, WAITERS = 2 };

/* In nanoseconds 33 ms more than seven times what a word holds. */
#define FAR 129127208516

static volatile sig_atomic_t fired, has_come;
static int is_over, ended;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void on_timer(int signal)
{
    (void)signal;
    fired++;
}

static void on_end(int signal)
{
    (void)signal;
    has_come++;
}

static int get(const int *word)
{
    ZERO(pthread_mutex_lock(&lock));
    int value = *word;
    ZERO(pthread_mutex_unlock(&lock));
    return value;
}

static void *wait_long(void *arg)
{
    struct timespec far = { FAR, 0 }, left;
    sigset_t none;

    CHECK(sigemptyset(&none) == 0 && sigaddset(&none, SIGRTMIN + 4) == 0);
    /* One that has been interrupted before its time begins anew. */
    do {
        switch (guest_num(arg)) {
        case 0:
            FAILS(nanosleep(&far, &left), EINTR);
            break;
        default:
            FAILS(sigtimedwait(&none, NULL, &far), EINTR);
            break;
        }
    } while (!get(&is_over));
    ZERO(pthread_mutex_lock(&lock));
    ended++;
    ZERO(pthread_mutex_unlock(&lock));
    return NULL;
}

int main(void)
{
    struct sigaction a = { .sa_handler = on_timer }, b = { .sa_handler = on_end };
    struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 3 };
    struct itimerval far = { { 0, 0 }, { FAR, 0 } }, often = { { FAR, 0 }, { FAR, 0 } };
    struct itimerspec spec = { { 0, 0 }, { FAR, 0 } }, never = { { 0, 0 }, { LONG_MAX, 999999999 } }, left;
    timer_t timers[2];
    pthread_t threads[WAITERS];

    CHECK(sigaction(SIGALRM, &a, NULL) == 0 && sigaction(SIGRTMIN + 3, &a, NULL) == 0);
    CHECK(sigaction(SIGVTALRM, &a, NULL) == 0 && sigaction(SIGUSR1, &b, NULL) == 0);
    CHECK(setitimer(ITIMER_REAL, &far, NULL) == 0 && setitimer(ITIMER_VIRTUAL, &often, NULL) == 0);
    for (int i = 0; i < 2; i++) {
        CHECK(timer_create(CLOCK_MONOTONIC, &event, &timers[i]) == 0);
        CHECK(timer_settime(timers[i], 0, i == 0 ? &spec : &never, NULL) == 0);
    }
    for (int i = 0; i < WAITERS; i++)
        threads[i] = guest_start(wait_long, guest_ptr(i));
    for (int r = 0; r < ROUNDS; r++) {
        guest_pause_us(3000);
        CHECK(fired == 0 && get(&ended) == 0);
    }
    CHECK(timer_gettime(timers[0], &left) == 0 && left.it_value.tv_sec > 1000000000);
    ZERO(pthread_mutex_lock(&lock));
    is_over = 1;
    ZERO(pthread_mutex_unlock(&lock));
    while (get(&ended) < WAITERS) {
        for (int i = 0; i < WAITERS; i++) {
            int rc = pthread_kill(threads[i], SIGUSR1);
            CHECK(rc == 0 || rc == ESRCH);
        }
        guest_pause_us(500);
    }
    for (int i = 0; i < WAITERS; i++)
        guest_join(threads[i]);
    CHECK(fired == 0 && has_come > 0);
    CHECK(timer_delete(timers[0]) == 0 && timer_delete(timers[1]) == 0);
    return guest_ok();
}
