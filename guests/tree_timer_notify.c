// Shows: timers that call functions in a process and in its children: each process has its own helper and its own timers.
// Breaks if: a child waits for the helper that stayed with its parent, or one of the two gets the other's expiries.
// kit: tree
// kit: varies
#include "guest.h"
#include <semaphore.h>
#include <signal.h>
#include <sys/wait.h>

enum { ROUNDS = 4, CALLS = 30 };

static sem_t called;
static pid_t whose;

static void on_expiry(union sigval value)
{
    CHECK(value.sival_int == whose && getpid() == whose);
    CHECK(sem_post(&called) == 0);
}

/* Waits for so many expiries of a timer of the calling process. */
static void count(int calls)
{
    struct sigevent event = { .sigev_notify = SIGEV_THREAD, .sigev_value.sival_int = getpid() };
    struct itimerspec every = { { 0, 2000000 }, { 0, 1000000 } };
    timer_t timer;

    whose = getpid();
    event.sigev_notify_function = on_expiry;
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_settime(timer, 0, &every, NULL) == 0);
    for (int i = 0; i < calls; i++)
        while (sem_wait(&called) != 0)
            CHECK(errno == EINTR);
    CHECK(timer_delete(timer) == 0);
}

int main(void)
{
    CHECK(sem_init(&called, 0, 0) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            /* What a late expiry's thread of the parent's was about to post at the fork is in no order with it. */
            CHECK(sem_init(&called, 0, 0) == 0);
            count(CALLS);
            _exit(7);
        }
        count(CALLS);
        int status;
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    }
    return guest_ok();
}
