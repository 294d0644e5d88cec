// Shows: an epoll set within another, and within poll and select; EPOLLRDHUP, EPOLLHUP, EPOLLERR; the errors of epoll_ctl.
// Breaks if: the readiness of an inner set is lost in the promoted copy, or the end of a stream is told as more bytes.
#include "net.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>

enum { ROUNDS = 60 };

static void add(int set, int fd, uint32_t events, uint64_t data)
{
    struct epoll_event want = { .events = events, .data.u64 = data };

    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &want) == 0);
}

static uint32_t told(int set, uint64_t data)
{
    struct epoll_event event[4];

    CHECK(epoll_wait(set, event, 4, -1) == 1 && event[0].data.u64 == data);
    return event[0].events;
}

int main(void)
{
    struct epoll_event event = { .events = EPOLLIN, .data.u64 = 0 };
    int inner = epoll_create1(EPOLL_CLOEXEC), outer = epoll_create(1), file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

    CHECK(inner >= 0 && outer >= 0 && file >= 0);
    add(outer, inner, EPOLLIN, 0xfeedfacecafebeefu);
    FAILS(epoll_ctl(inner, EPOLL_CTL_ADD, outer, &event), ELOOP);
    FAILS(epoll_ctl(inner, EPOLL_CTL_ADD, inner, &event), EINVAL);
    FAILS(epoll_ctl(inner, EPOLL_CTL_ADD, file, &event), EPERM);
    FAILS(epoll_ctl(inner, EPOLL_CTL_DEL, outer, &event), ENOENT);
    FAILS(epoll_ctl(inner, EPOLL_CTL_ADD, 900, &event), EBADF);
    FAILS(epoll_wait(file, &event, 1, 0), EINVAL);
    FAILS(epoll_wait(inner, &event, 0, 0), EINVAL);
    for (int r = 0; r < ROUNDS; r++) {
        int pair[2], ends[2];
        char byte = (char)r;
        struct pollfd both = { outer, POLLIN, 0 };
        fd_set set;
        net_pair(pair);
        CHECK(pipe2(ends, O_CLOEXEC) == 0);
        add(inner, pair[0], EPOLLIN | EPOLLRDHUP, (uint64_t)r);
        add(inner, ends[1], 0, (uint64_t)r + 1000);
        FAILS(epoll_ctl(inner, EPOLL_CTL_ADD, pair[0], &event), EEXIST);
        CHECK(epoll_wait(outer, &event, 1, 0) == 0 && poll(&both, 1, 0) == 0);
        guest_write_all(pair[1], &byte, 1);
        CHECK(poll(&both, 1, -1) == 1 && both.revents == POLLIN);
        FD_ZERO(&set);
        FD_SET(outer, &set);
        CHECK(select(outer + 1, &set, NULL, NULL, NULL) == 1 && FD_ISSET(outer, &set));
        CHECK(told(outer, 0xfeedfacecafebeefu) == EPOLLIN && told(inner, (uint64_t)r) == EPOLLIN);
        guest_read_all(pair[0], &byte, 1);
        CHECK(shutdown(pair[1], SHUT_WR) == 0 && told(inner, (uint64_t)r) == (EPOLLIN | EPOLLRDHUP));
        CHECK(shutdown(pair[0], SHUT_WR) == 0);
        CHECK(told(inner, (uint64_t)r) == (EPOLLIN | EPOLLRDHUP | EPOLLHUP));
        CHECK(epoll_ctl(inner, EPOLL_CTL_DEL, pair[0], NULL) == 0 && epoll_wait(outer, &event, 1, 0) == 0);
        CHECK(close(ends[0]) == 0 && told(inner, (uint64_t)r + 1000) == EPOLLERR);
        CHECK(close(ends[1]) == 0 && close(pair[0]) == 0 && close(pair[1]) == 0);
        guest_pause_us(800);
    }
    CHECK(close(inner) == 0 && epoll_wait(outer, &event, 1, 0) == 0 && close(outer) == 0 && close(file) == 0);
    return guest_ok();
}
