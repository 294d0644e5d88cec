// Shows: a signalfd in an epoll set with EPOLLONESHOT: told of one signal, armed, told of the next one.
// Breaks if: who takes over leaves it in the set as it is: a set waits for the signals of the process that has put it there.
#include "guest.h"
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>

enum { ROUNDS = 80 };

int main(void)
{
    struct epoll_event event = { .events = EPOLLIN | EPOLLONESHOT, .data.u64 = 7 };
    struct signalfd_siginfo info;
    sigset_t set;
    int told = 0, epoll = epoll_create1(EPOLL_CLOEXEC);

    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    ZERO(sigprocmask(SIG_BLOCK, &set, NULL));
    int fd = signalfd(-1, &set, SFD_CLOEXEC);
    CHECK(epoll >= 0 && fd >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        ZERO(kill(getpid(), SIGUSR1));
        CHECK(epoll_wait(epoll, &event, 1, 5000) == 1 && event.data.u64 == 7);
        for (int look = 0; look < 6; look++) {
            guest_pause_us(500);
            CHECK(epoll_wait(epoll, &event, 1, 0) == 0);
        }
        CHECK(read(fd, &info, sizeof info) == sizeof info && info.ssi_signo == SIGUSR1);
        event = (struct epoll_event){ .events = EPOLLIN | EPOLLONESHOT, .data.u64 = 7 };
        CHECK(epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event) == 0);
        /* A signal that comes while the set waits. */
        CHECK(epoll_wait(epoll, &event, 1, 0) == 0);
        told++;
    }
    printf("told %d\n", told);
    return guest_ok();
}
