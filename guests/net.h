/* net.h: loopback sockets for the guests that talk to themselves. */
#ifndef UNDERSTUDY_NET_H
#define UNDERSTUDY_NET_H

#include "guest.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

/* A socket bound to a free loopback port, whose address is stored. */
static inline int net_bound(int type, struct sockaddr_in *address)
{
    socklen_t length = sizeof *address;
    int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);

    memset(address, 0, sizeof *address);
    address->sin_family = AF_INET;
    address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)address, sizeof *address) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)address, &length) == 0 && address->sin_port != 0);
    return fd;
}

static inline int net_connect(const struct sockaddr_in *address)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

    CHECK(fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof *address) == 0);
    CHECK(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
    return fd;
}

/* Two ends of one TCP connection over loopback. */
static inline void net_pair(int pair[2])
{
    struct sockaddr_in address;
    int listener = net_bound(SOCK_STREAM, &address);

    CHECK(listen(listener, 1) == 0);
    pair[0] = net_connect(&address);
    pair[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    int on = 1;
    CHECK(pair[1] >= 0 && setsockopt(pair[1], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
    CHECK(close(listener) == 0);
}

#endif
