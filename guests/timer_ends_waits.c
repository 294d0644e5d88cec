// Shows: waits of many kinds that a thread's own timer ends: behind each EINTR its handler has run.
// Breaks if: a copy takes over between the end of a wait and its handler, and tells of a handler that never comes.
#include "guest.h"
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>

enum { ROUNDS = 60, MS = 1000000, POLL = 0, READ, SLEEP, EPOLL, SUSPEND, SEMAPHORE, SELECT, RECEIVE, KINDS };

static __thread volatile sig_atomic_t caught;

static void handler(int signal)
{
    (void)signal;
    caught++;
}

static void *work(void *arg)
{
    int kind = (int)guest_num(arg), ends[2], pair[2], set = epoll_create1(0);
    struct sigevent event = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN + 1 };
    struct itimerspec every = { { 0, 2 * MS }, { 0, MS } };
    struct timespec long_time = { 10, 0 };
    struct timeval long_value = { 10, 0 };
    struct epoll_event one;
    sigset_t none;
    timer_t timer;
    sem_t sem;
    char c;

    CHECK(set >= 0 && pipe(ends) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && sem_init(&sem, 0, 0) == 0);
    CHECK(sigemptyset(&none) == 0);
    struct pollfd in = { .fd = ends[0], .events = POLLIN };
    event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_settime(timer, 0, &every, NULL) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        int before = caught;

        switch (kind) {
        case POLL:
            FAILS(poll(&in, 1, 10000), EINTR);
            break;
        case READ:
            FAILS(read(ends[0], &c, 1), EINTR);
            break;
        case SLEEP:
            FAILS(nanosleep(&long_time, NULL), EINTR);
            break;
        case EPOLL:
            FAILS(epoll_wait(set, &one, 1, 10000), EINTR);
            break;
        case SUSPEND:
            FAILS(sigsuspend(&none), EINTR);
            break;
        case SEMAPHORE:
            FAILS(sem_wait(&sem), EINTR);
            break;
        case SELECT:
            FAILS(select(0, NULL, NULL, NULL, &long_value), EINTR);
            long_value = (struct timeval){ 10, 0 };
            break;
        default:
            FAILS(recv(pair[0], &c, 1, 0), EINTR);
        }
        CHECK(caught > before);
    }
    CHECK(timer_delete(timer) == 0);
    return arg;
}

int main(void)
{
    struct sigaction action = { .sa_handler = handler };
    pthread_t threads[KINDS];

    CHECK(sigaction(SIGRTMIN + 1, &action, NULL) == 0);
    for (int t = 0; t < KINDS; t++)
        threads[t] = guest_start(work, guest_ptr(t));
    for (int t = 0; t < KINDS; t++)
        CHECK(guest_num(guest_join(threads[t])) == t);
    return guest_ok();
}
