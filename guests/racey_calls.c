// Shows: a race of threads that make calls which might wait and need not: questions to a device, messages that are there, polls.
//        Such a thread keeps its place in a computed order.
// Breaks if: a call that the kernel answers at once counts as a wait for the world, and its thread comes back whenever that was.
// kit: varies
// kit: stale a race, and beside a recording nobody takes turns
// kit: turns its threads do to each other what no lock orders
// kit: serial one thread at a time: its threads do to each other what no lock orders
#include "net.h"
#include "racey.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <termios.h>

enum { THREADS = 4, ROUNDS = 150, CALLS = 8 };

static void call(unsigned which, int own[2], int epoll)
{
    struct termios terminal;
    struct epoll_event event;
    char byte = 'x', many;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    struct pollfd ready = {own[1], POLLIN, 0};
    int waiting;

    switch (which % CALLS) {
    case 0: CHECK(ioctl(own[0], TCGETS, &terminal) == -1); break;
    case 1: CHECK(ioctl(own[1], FIONREAD, &waiting) == 0); break;
    case 2: CHECK(fcntl(own[0], F_GETFL) >= 0); break;
    case 3: CHECK(poll(&ready, 1, 0) >= 0); break;
    case 4: CHECK(epoll_wait(epoll, &event, 1, 0) >= 0); break;
    case 5: CHECK(recv(own[0], &many, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN); break;
    case 6: CHECK(sendmsg(own[0], &message, 0) == 1 && poll(&ready, 1, 0) == 1); break;
    default:
        CHECK(sendmsg(own[0], &message, 0) == 1 && epoll_wait(epoll, &event, 1, 0) == 1);
        CHECK(recvmsg(own[1], &message, 0) == 1);
    }
}

static void *race(void *arg)
{
    unsigned last = (unsigned)guest_num(arg) + 1;
    int own[2], epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event wanted = {.events = EPOLLIN};

    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, own) == 0);
    CHECK(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, own[1], &wanted) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        for (int step = 0; step < 20; step++)
            last = racey_step(racey_own, last);
        call(last >> 3, own, epoll);
    }
    CHECK(close(own[0]) == 0 && close(own[1]) == 0 && close(epoll) == 0);
    return guest_ptr((long)last);
}

int main(void)
{
    return racey_run(race, THREADS);
}
