// Shows: EPOLLONESHOT: what has been reported is not reported again before it is armed, also when its other end is gone by then.
// Breaks if: who takes over, or goes on from a checkpoint, puts it into the set again: the kernel arms that for its end at least.
#include "guest.h"
#include <sys/epoll.h>
#include <sys/socket.h>

enum { ROUNDS = 60, LOOKS = 12 };

int main(void)
{
    int set = epoll_create1(EPOLL_CLOEXEC), looks = 0;
    struct epoll_event event;

    CHECK(set >= 0);
    for (int round = 0; round < ROUNDS; round++) {
        /* Something that is told by edge, and something that is never ready, are in the set as well. */
        int pair[2], edge[2], idle[2];
        char byte = (char)round;
        CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
        CHECK(pipe(edge) == 0 && pipe(idle) == 0);
        event = (struct epoll_event){ .events = EPOLLIN | EPOLLONESHOT, .data.u64 = 1 };
        CHECK(epoll_ctl(set, EPOLL_CTL_ADD, pair[0], &event) == 0);
        event = (struct epoll_event){ .events = EPOLLIN | EPOLLET, .data.u64 = 2 };
        CHECK(epoll_ctl(set, EPOLL_CTL_ADD, edge[0], &event) == 0);
        event = (struct epoll_event){ .events = EPOLLIN | EPOLLONESHOT, .data.u64 = 3 };
        CHECK(epoll_ctl(set, EPOLL_CTL_ADD, idle[0], &event) == 0);
        guest_write_all(pair[1], &byte, 1);
        CHECK(epoll_wait(set, &event, 1, -1) == 1 && event.data.u64 == 1);
        CHECK(event.events == EPOLLIN);
        guest_read_all(pair[0], &byte, 1);
        ZERO(close(pair[1]));
        for (int look = 0; look < LOOKS; look++, looks++) {
            guest_pause_us(500);
            CHECK(epoll_wait(set, &event, 1, 0) == 0);
        }
        guest_write_all(edge[1], &byte, 1);
        CHECK(epoll_wait(set, &event, 1, -1) == 1 && event.data.u64 == 2);
        event = (struct epoll_event){ .events = EPOLLIN | EPOLLONESHOT, .data.u64 = 4 };
        CHECK(epoll_ctl(set, EPOLL_CTL_MOD, pair[0], &event) == 0);
        /* An edge that was told may be told once more behind a failover. */
        do
            CHECK(epoll_wait(set, &event, 1, -1) == 1);
        while (event.data.u64 == 2);
        CHECK(event.data.u64 == 4 && event.events & EPOLLHUP);
        ZERO(close(pair[0]) | close(edge[0]) | close(edge[1]) | close(idle[0]) | close(idle[1]));
    }
    printf("looks %d\n", looks);
    return guest_ok();
}
