// Shows: a socket keeps its options, its filter of packets and the peer that it sends to, for the program's whole life.
// Breaks if: whoever makes a socket again (a checkpoint that goes on) forgets one: UDP servers that ask for IP_PKTINFO drop
// each question then, and a socket of netlink that is taken for a connection is at its end for ever.
#include "guest.h"
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

enum { ROUNDS = 150, KEPT = 10 };

static const struct timeval WAIT = { .tv_usec = 200 * 1000 };

static const struct option {
    int level, name, value;
} UDP[] = {
    { IPPROTO_IP, IP_PKTINFO, 1 },
    { IPPROTO_IP, IP_TTL, 9 },
    { IPPROTO_IP, IP_RECVTTL, 1 },
    { IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO },
    { IPPROTO_IP, IP_MULTICAST_LOOP, 0 },
    { SOL_SOCKET, SO_BROADCAST, 1 },
    { SOL_SOCKET, SO_RCVBUF, 60000 },
}, TCP[] = {
    { SOL_SOCKET, SO_REUSEADDR, 1 },
    { SOL_SOCKET, SO_KEEPALIVE, 1 },
    { SOL_SOCKET, SO_RCVBUF, 50000 },
    { IPPROTO_TCP, TCP_NODELAY, 1 },
    { IPPROTO_TCP, TCP_KEEPIDLE, 33 },
    { IPPROTO_TCP, TCP_USER_TIMEOUT, 4400 },
};

static void set(int fd, const struct option *all, size_t count)
{
    for (size_t i = 0; i < count; i++)
        CHECK(setsockopt(fd, all[i].level, all[i].name, &all[i].value, sizeof(int)) == 0);
}

static void has(int fd, const struct option *all, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int now = -1, doubles = all[i].level == SOL_SOCKET && all[i].name == SO_RCVBUF;
        socklen_t len = sizeof now;
        CHECK(getsockopt(fd, all[i].level, all[i].name, &now, &len) == 0);
        if (now != all[i].value << doubles)
            fprintf(stderr, "option %d of level %d is %d\n", all[i].name, all[i].level, now);
        CHECK(now == all[i].value << doubles);
    }
}

#define OF(all) all, sizeof(all) / sizeof((all)[0])

static int datagrams(struct sockaddr_in *own)
{
    socklen_t len = sizeof *own;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    *own = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)own, len) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)own, &len) == 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &WAIT, sizeof WAIT) == 0);
    return fd;
}

/* What waits at a socket may be lost where the program goes on from a checkpoint, as UDP may lose it. */
static void tell(int from, int to, int round)
{
    char text[40] = { 0 }, got[40], room[128];

    for (;;) {
        struct iovec part = { got, sizeof got };
        struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room };
        snprintf(text, sizeof text, "%09d and what it takes away", round);
        CHECK(send(from, text, sizeof text, 0) == sizeof text);
        ssize_t len = recvmsg(to, &message, 0);
        if (len < 0) {
            CHECK(errno == EAGAIN);
            continue;
        }
        CHECK(len == KEPT);
        if (atoi(got) != round)
            continue;
        int told = 0;
        for (struct cmsghdr *one = CMSG_FIRSTHDR(&message); one; one = CMSG_NXTHDR(&message, one))
            told |= one->cmsg_type == IP_PKTINFO ? 1 : one->cmsg_type == IP_TTL ? 2 : 0;
        CHECK(told == 3);
        return;
    }
}

/* How many network interfaces the kernel lists. */
static int interfaces(int fd)
{
    struct {
        struct nlmsghdr head;
        struct rtgenmsg body;
    } ask = { { sizeof ask, RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, 0, 0 }, { AF_UNSPEC } };
    static _Alignas(struct nlmsghdr) char got[32768];
    int seen = 0;

    for (;;) {
        ask.head.nlmsg_seq++;
        CHECK(send(fd, &ask, sizeof ask, 0) == sizeof ask);
        for (;;) {
            ssize_t len = recv(fd, got, sizeof got, 0);
            if (len < 0 && errno == EAGAIN)
                break;
            CHECK(len > 0);
            for (struct nlmsghdr *one = (void *)got; NLMSG_OK(one, (size_t)len); one = NLMSG_NEXT(one, len)) {
                if (one->nlmsg_seq != ask.head.nlmsg_seq)
                    continue;
                if (one->nlmsg_type == NLMSG_DONE)
                    return seen;
                seen += one->nlmsg_type == RTM_NEWLINK;
            }
        }
        seen = 0;
    }
}

static int local(const char *own, const char *peer)
{
    struct sockaddr_un name = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);

    CHECK(fd >= 0);
    CHECK(strlen(own ? own : peer) < sizeof name.sun_path);
    strcpy(name.sun_path, own ? own : peer);
    CHECK((own ? bind : connect)(fd, (struct sockaddr *)&name, sizeof name) == 0);
    return fd;
}

int main(void)
{
    struct sock_filter first_bytes[] = { BPF_STMT(BPF_RET | BPF_K, 8 + KEPT) };
    struct sock_fprog filter = { 1, first_bytes };
    struct sockaddr_in one_name, other_name;
    struct sockaddr_nl group = { .nl_family = AF_NETLINK, .nl_groups = RTMGRP_LINK };
    uint32_t groups[4] = { 0 };
    socklen_t len;
    int count = 0;

    guest_scratch();
    struct guest_name log = guest_path("log"), file = guest_path("file");
    int one = datagrams(&one_name), other = datagrams(&other_name);
    CHECK(connect(one, (struct sockaddr *)&other_name, sizeof other_name) == 0);
    CHECK(connect(other, (struct sockaddr *)&one_name, sizeof one_name) == 0);
    set(one, OF(UDP));
    set(other, OF(UDP));
    CHECK(setsockopt(one, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) == 0);
    CHECK(setsockopt(other, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) == 0);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    set(listener, OF(TCP));
    CHECK(listen(listener, 5) == 0);
    int links = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    CHECK(links >= 0 && bind(links, (struct sockaddr *)&group, sizeof group) == 0);
    CHECK(setsockopt(links, SOL_SOCKET, SO_RCVTIMEO, &WAIT, sizeof WAIT) == 0);
    int asks = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    CHECK(asks >= 0 && setsockopt(asks, SOL_SOCKET, SO_RCVTIMEO, &WAIT, sizeof WAIT) == 0);
    int logger = local(log.s, NULL), logs = local(NULL, log.s);
    /* As mkstemp of some languages opens it; nothing leads to it any more. */
    int lost = open(file.s, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    CHECK(lost >= 0 && unlink(file.s) == 0 && pwrite(lost, "kept", 4, 0) == 4);

    int all = interfaces(asks);
    for (int r = 0; r < ROUNDS; r++) {
        char got[8];
        has(one, OF(UDP));
        has(other, OF(UDP));
        has(listener, OF(TCP));
        tell(one, other, r);
        tell(other, one, r);
        CHECK(interfaces(asks) == all);
        len = sizeof groups;
        CHECK(getsockopt(links, SOL_NETLINK, NETLINK_LIST_MEMBERSHIPS, groups, &len) == 0);
        CHECK(groups[0] == RTMGRP_LINK);
        CHECK(send(logs, "line", 4, 0) == 4 && recv(logger, got, sizeof got, 0) == 4);
        CHECK(pread(lost, got, 4, 0) == 4 && memcmp(got, "kept", 4) == 0);
        count++;
        guest_pause_us(300);
    }
    CHECK(unlink(log.s) == 0);
    guest_scratch_end();
    printf("kept %d times\n", count);
    return guest_ok();
}
