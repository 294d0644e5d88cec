// Shows: a connect in progress, its outcome by SO_ERROR, ECONNREFUSED, EISCONN, TCP_INFO, getpeername, SO_LINGER reset.
// Breaks if: a connect is begun a second time after a failover, or its outcome is asked twice (SO_ERROR clears itself).
#include "net.h"
#include <poll.h>

enum { ROUNDS = 50 };

static int finish(int fd)
{
    struct pollfd p = { fd, POLLOUT, 0 };
    socklen_t length = sizeof(int);
    int error = -1;

    CHECK(poll(&p, 1, -1) == 1);
    CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0);
    return error;
}

int main(void)
{
    struct sockaddr_in address, gone, peer;
    int listener = net_bound(SOCK_STREAM, &address), refused = 0, connected = 0;

    CHECK(listen(listener, 8) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        socklen_t length = sizeof peer;
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        CHECK(fd >= 0);
        if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
            CHECK(errno == EINPROGRESS);
        CHECK(finish(fd) == 0);
        /* The first call after completion may still say 0; from then on it is EISCONN. */
        if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
            CHECK(errno == EISCONN);
        FAILS(connect(fd, (struct sockaddr *)&address, sizeof address), EISCONN);
        int other = accept(listener, NULL, NULL);
        CHECK(other >= 0 && getpeername(fd, (struct sockaddr *)&peer, &length) == 0 && peer.sin_port == address.sin_port);
        struct tcp_info info;
        length = sizeof info;
        CHECK(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 && info.tcpi_state == TCP_ESTABLISHED);
        connected++;
        struct linger reset = { 1, 0 };
        char c;
        CHECK(setsockopt(other, SOL_SOCKET, SO_LINGER, &reset, sizeof reset) == 0 && close(other) == 0);
        struct pollfd p = { fd, POLLIN, 0 };
        CHECK(poll(&p, 1, -1) == 1 && (p.revents & POLLERR));
        FAILS(read(fd, &c, 1), ECONNRESET);
        CHECK(close(fd) == 0);
        int dead = net_bound(SOCK_STREAM, &gone); /* bound, never listening */
        fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        if (connect(fd, (struct sockaddr *)&gone, sizeof gone) != 0 && errno == EINPROGRESS)
            CHECK(finish(fd) == ECONNREFUSED);
        refused++;
        CHECK(close(fd) == 0 && close(dead) == 0);
        guest_pause_us(300);
    }
    printf("connected %d, refused %d\n", connected, refused);
    return guest_ok();
}
