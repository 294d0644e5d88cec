// Shows: datagrams cut short tell their whole length (MSG_TRUNC), are looked at (MSG_PEEK), are empty, and bring address and time with them.
// Breaks if: a look takes the datagram, an empty one is the end, or what came beside the bytes is not in the log.
// kit: no-checkpoint datagrams that wait at a socket are lost, as datagrams may be
#include "net.h"
#include <sys/ioctl.h>

enum { ROUNDS = 60 };

static void take(int fd, int r, const struct sockaddr_in *from)
{
    char room[256], part[8];
    struct iovec parts[2] = { { part, 3 }, { part + 3, 5 } };
    struct sockaddr_in address;
    struct msghdr message = { &address, sizeof address, parts, 2, room, sizeof room, 0 };
    int seen = 0, queued = 0;

    CHECK(recv(fd, part, 4, MSG_PEEK | MSG_TRUNC) == 100 + r);
    CHECK(ioctl(fd, FIONREAD, &queued) == 0 && queued == 100 + r);
    CHECK(recvmsg(fd, &message, MSG_TRUNC) == 100 + r && (message.msg_flags & MSG_TRUNC));
    CHECK(memcmp(&address, from, sizeof address) == 0);
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
            struct in_pktinfo info;
            memcpy(&info, CMSG_DATA(c), sizeof info);
            CHECK(info.ipi_addr.s_addr == htonl(INADDR_LOOPBACK) && info.ipi_ifindex > 0);
            seen |= 1;
        } else if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TTL) {
            int ttl;
            memcpy(&ttl, CMSG_DATA(c), sizeof ttl);
            CHECK(ttl == 40 + r);
            seen |= 2;
        } else if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_TIMESTAMPNS) {
            struct timespec when;
            memcpy(&when, CMSG_DATA(c), sizeof when);
            CHECK(when.tv_sec > 1500000000 && (int64_t)when.tv_sec * 1000000000 + when.tv_nsec <= guest_now_ns(CLOCK_REALTIME));
            seen |= 4;
        }
    }
    CHECK(seen == 7);
}

int main(void)
{
    struct sockaddr_in a, b;
    struct timeval patience = { 0, 2000 };
    int x = net_bound(SOCK_DGRAM, &a), y = net_bound(SOCK_DGRAM, &b), on = 1;
    char data[300] = "abcdefgh", back[300];

    CHECK(setsockopt(y, IPPROTO_IP, IP_PKTINFO, &on, sizeof on) == 0);
    CHECK(setsockopt(y, IPPROTO_IP, IP_RECVTTL, &on, sizeof on) == 0);
    CHECK(setsockopt(y, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        int ttl = 40 + r;
        CHECK(setsockopt(x, IPPROTO_IP, IP_TTL, &ttl, sizeof ttl) == 0);
        CHECK(sendto(x, data, (size_t)(100 + r), 0, (struct sockaddr *)&b, sizeof b) == 100 + r);
        take(y, r, &a);
        FAILS(recv(y, back, sizeof back, MSG_DONTWAIT), EAGAIN);
        CHECK(sendto(x, data, 0, 0, (struct sockaddr *)&b, sizeof b) == 0);
        CHECK(sendto(x, data, 8, MSG_CONFIRM, (struct sockaddr *)&b, sizeof b) == 8);
        CHECK(recv(y, back, sizeof back, 0) == 0 && recv(y, back, 4, 0) == 4 && memcmp(back, "abcd", 4) == 0);
        if (r % 10 == 0) {
            CHECK(setsockopt(y, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
            FAILS(recv(y, back, sizeof back, 0), EAGAIN);
        }
        guest_pause_us(800);
    }
    CHECK(close(x) == 0 && close(y) == 0);
    return guest_ok();
}
