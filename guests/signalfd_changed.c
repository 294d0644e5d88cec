// Shows: a signalfd whose set of signals is changed after it was put into an epoll set reports the old ones and the new ones.
// Breaks if: the change passes for a new descriptor: the set that the program waits on is not told of its signals after a failover.
#include "guest.h"
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>

enum { ROUNDS = 80 };

static const int SIGNALS[] = { SIGUSR1, SIGHUP, SIGTERM };

static int wait_for(int set, int fd)
{
    struct epoll_event told;
    struct signalfd_siginfo info;

    CHECK(epoll_wait(set, &told, 1, 10000) == 1 && told.events == EPOLLIN && told.data.fd == fd);
    RETURNS(read(fd, &info, sizeof info), sizeof info);
    CHECK(epoll_wait(set, &told, 1, 0) == 0);
    return (int)info.ssi_signo;
}

int main(void)
{
    sigset_t all, mask;
    long told = 0;

    CHECK(sigemptyset(&all) == 0);
    for (int i = 0; i < 3; i++)
        CHECK(sigaddset(&all, SIGNALS[i]) == 0);
    ZERO(pthread_sigmask(SIG_BLOCK, &all, NULL));
    CHECK(sigemptyset(&mask) == 0 && sigaddset(&mask, SIGNALS[0]) == 0);
    int set = epoll_create1(EPOLL_CLOEXEC);
    int fd = signalfd(-1, &mask, SFD_NONBLOCK);
    struct epoll_event wanted = { .events = EPOLLIN, .data.fd = fd };
    CHECK(set >= 0 && fd >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, fd, &wanted) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        CHECK(signalfd(fd, &all, 0) == fd);
        for (int i = 0; i < 3; i++) {
            CHECK(raise(SIGNALS[i]) == 0);
            CHECK(wait_for(set, fd) == SIGNALS[i]);
            told++;
        }
        guest_pause_us(300);
        CHECK(signalfd(fd, &mask, 0) == fd);
        CHECK(raise(SIGNALS[1]) == 0);
        struct epoll_event none;
        CHECK(epoll_wait(set, &none, 1, 0) == 0);
        CHECK(signalfd(fd, &all, 0) == fd);
        CHECK(wait_for(set, fd) == SIGNALS[1]);
    }
    printf("told %ld\n", told);
    return guest_ok();
}
