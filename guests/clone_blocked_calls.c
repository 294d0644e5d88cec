// Shows: threads blocked in read, epoll_wait, poll, nanosleep, a futex of their own and sigwait while a standby is made.
// Breaks if: the signal that parks them ends a call early, is seen as EINTR, eats a byte or a signal, or shortens a sleep.
// kit: allow unprotected it waits by futex calls of its own: turns begin with a new standby
#include "guest.h"
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

enum { ROUNDS = 30 };

static int pipes[3][2]; /* for read, epoll and poll */
static uint32_t word;

static void *in_read(void *arg)
{
    long sum = 0;

    (void)arg;
    for (int r = 0; r < ROUNDS; r++) {
        unsigned char byte;
        RETURNS(read(pipes[0][0], &byte, 1), 1);
        CHECK(byte == r);
        sum += byte;
    }
    return guest_ptr(sum);
}

static void *in_epoll(void *arg)
{
    struct epoll_event event = { .events = EPOLLIN, .data.u64 = 77 };
    int set = epoll_create1(EPOLL_CLOEXEC);
    long sum = 0;

    (void)arg;
    CHECK(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, pipes[1][0], &event) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        unsigned char byte;
        RETURNS(epoll_wait(set, &event, 1, -1), 1);
        CHECK(event.data.u64 == 77 && read(pipes[1][0], &byte, 1) == 1 && byte == r);
        sum += byte;
    }
    CHECK(close(set) == 0);
    return guest_ptr(sum);
}

static void *in_poll(void *arg)
{
    long sum = 0;

    (void)arg;
    for (int r = 0; r < ROUNDS; r++) {
        struct pollfd fd = { .fd = pipes[2][0], .events = POLLIN };
        unsigned char byte;
        RETURNS(poll(&fd, 1, -1), 1);
        CHECK(fd.revents == POLLIN && read(pipes[2][0], &byte, 1) == 1 && byte == r);
        sum += byte;
    }
    return guest_ptr(sum);
}

static void *in_sleep(void *arg)
{
    struct timespec t = { 0, 5000000 };

    (void)arg;
    for (int r = 0; r < ROUNDS; r++) {
        int64_t start = guest_now_ns(CLOCK_MONOTONIC);
        RETURNS(nanosleep(&t, NULL), 0);
        CHECK(guest_now_ns(CLOCK_MONOTONIC) - start >= 5000000);
    }
    return guest_ptr(ROUNDS);
}

static void *in_sigwait(void *arg)
{
    sigset_t set;
    long values = 0;

    (void)arg;
    CHECK(sigemptyset(&set) == 0 && sigaddset(&set, SIGRTMIN + 1) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        siginfo_t info;
        RETURNS(sigwaitinfo(&set, &info), SIGRTMIN + 1);
        values += info.si_value.sival_int;
    }
    return guest_ptr(values);
}

/* A futex of the program's own is awaited with a limit: it may wake without a reason, and the word decides. */
static void *in_futex(void *arg)
{
    struct timespec limit = { 0, 20000000 };

    (void)arg;
    for (;;) {
        uint32_t now = __atomic_load_n(&word, __ATOMIC_ACQUIRE);
        if (now == ROUNDS)
            return guest_ptr(now);
        if (syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, now, &limit, NULL, 0) != 0)
            CHECK(errno == EAGAIN || errno == ETIMEDOUT || errno == EINTR);
    }
}

int main(void)
{
    void *(*bodies[])(void *) = { in_read, in_epoll, in_poll, in_sleep, in_sigwait, in_futex };
    enum { COUNT = sizeof bodies / sizeof bodies[0] };
    pthread_t t[COUNT];
    sigset_t set;

    CHECK(sigemptyset(&set) == 0 && sigaddset(&set, SIGRTMIN + 1) == 0);
    ZERO(pthread_sigmask(SIG_BLOCK, &set, NULL));
    for (int p = 0; p < 3; p++)
        CHECK(pipe2(pipes[p], O_CLOEXEC) == 0);
    for (int i = 0; i < COUNT; i++)
        t[i] = guest_start(bodies[i], NULL);
    for (int r = 0; r < ROUNDS; r++) {
        unsigned char byte = (unsigned char)r;
        guest_pause_us(4000);
        for (int p = 0; p < 3; p++)
            RETURNS(write(pipes[p][1], &byte, 1), 1);
        ZERO(pthread_sigqueue(t[4], SIGRTMIN + 1, (union sigval) { .sival_int = r }));
        __atomic_fetch_add(&word, 1, __ATOMIC_RELEASE);
        syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
        guest_pause_us(2000);
    }
    for (int i = 0; i < COUNT; i++)
        printf("%d: %ld\n", i, guest_num(guest_join(t[i])));
    return guest_ok();
}
