// Shows: options of TCP sockets are what was set: keepalive, linger, timeouts, NODELAY and CORK, buffers, two listeners on one port.
// Breaks if: an option is set on the wrong socket once numbers are used again, or a second listener's port is lost in a failover.
#include "net.h"
#include <poll.h>

enum { ROUNDS = 40 };

static void set(int fd, int level, int option, int value)
{
    CHECK(setsockopt(fd, level, option, &value, sizeof value) == 0);
}

static int get(int fd, int level, int option)
{
    int value = -1;
    socklen_t length = sizeof value;

    CHECK(getsockopt(fd, level, option, &value, &length) == 0 && length == sizeof value);
    return value;
}

static int listener(struct sockaddr_in *address)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t length = sizeof *address;

    CHECK(fd >= 0);
    set(fd, SOL_SOCKET, SO_REUSEPORT, 1);
    CHECK(bind(fd, (struct sockaddr *)address, sizeof *address) == 0 && listen(fd, 8) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)address, &length) == 0);
    return fd;
}

int main(void)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int first = listener(&address), second = listener(&address);
    long sum = 0;

    CHECK(get(first, SOL_SOCKET, SO_ACCEPTCONN) == 1 && get(second, SOL_SOCKET, SO_REUSEPORT) == 1);
    for (int r = 0; r < ROUNDS; r++) {
        struct linger linger = { 1, r + 1 }, told;
        struct timeval wait = { r, 250000 }, waits;
        struct tcp_info info;
        socklen_t length = sizeof told;
        int client = net_connect(&address);
        struct pollfd ready[2] = { { first, POLLIN, 0 }, { second, POLLIN, 0 } };
        CHECK(poll(ready, 2, -1) == 1);
        int server = accept4(ready[0].revents ? first : second, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        CHECK(server >= 0 && (fcntl(server, F_GETFL) & O_NONBLOCK) && fcntl(server, F_GETFD) == FD_CLOEXEC);
        set(client, SOL_SOCKET, SO_KEEPALIVE, 1);
        set(client, IPPROTO_TCP, TCP_KEEPIDLE, 100 + r);
        set(client, IPPROTO_TCP, TCP_KEEPINTVL, 10 + r);
        set(client, IPPROTO_TCP, TCP_KEEPCNT, 3 + r);
        set(client, IPPROTO_TCP, TCP_USER_TIMEOUT, 5000 + r);
        CHECK(setsockopt(client, SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0);
        CHECK(setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait) == 0);
        set(server, SOL_SOCKET, SO_SNDBUF, 65536);
        set(server, SOL_SOCKET, SO_RCVLOWAT, 1);
        CHECK(get(client, SOL_SOCKET, SO_KEEPALIVE) == 1 && get(client, IPPROTO_TCP, TCP_KEEPIDLE) == 100 + r);
        CHECK(get(client, IPPROTO_TCP, TCP_KEEPINTVL) == 10 + r && get(client, IPPROTO_TCP, TCP_KEEPCNT) == 3 + r);
        CHECK(get(client, IPPROTO_TCP, TCP_USER_TIMEOUT) == 5000 + r && get(client, IPPROTO_TCP, TCP_NODELAY) == 1);
        CHECK(getsockopt(client, SOL_SOCKET, SO_LINGER, &told, &length) == 0 && told.l_onoff == 1 && told.l_linger == r + 1);
        length = sizeof waits;
        CHECK(getsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &waits, &length) == 0 && waits.tv_sec == r && waits.tv_usec >= 250000);
        CHECK(get(server, SOL_SOCKET, SO_SNDBUF) == 131072 && get(server, SOL_SOCKET, SO_TYPE) == SOCK_STREAM);
        CHECK(get(server, SOL_SOCKET, SO_DOMAIN) == AF_INET && get(server, SOL_SOCKET, SO_ERROR) == 0);
        length = sizeof info;
        CHECK(getsockopt(server, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 && info.tcpi_state == TCP_ESTABLISHED);

        long n = r, back = 0;
        set(client, IPPROTO_TCP, TCP_NODELAY, 0);
        set(client, IPPROTO_TCP, TCP_CORK, 1);
        CHECK(send(client, &n, 3, 0) == 3 && send(client, (char *)&n + 3, 3, MSG_MORE) == 3);
        FAILS(recv(server, &back, sizeof back, 0), EAGAIN);
        CHECK(send(client, (char *)&n + 6, 2, 0) == 2);
        set(client, IPPROTO_TCP, TCP_CORK, 0);
        struct pollfd whole = { server, POLLIN, 0 };
        set(server, SOL_SOCKET, SO_RCVLOWAT, sizeof n);
        CHECK(poll(&whole, 1, -1) == 1 && recv(server, &back, sizeof back, MSG_PEEK) == sizeof back && back == r);
        CHECK(recv(server, &back, sizeof back, 0) == sizeof back && back == r);
        linger.l_onoff = 0;
        CHECK(setsockopt(client, SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0);
        CHECK(close(server) == 0 && close(client) == 0);
        sum += back;
        guest_pause_us(1000);
    }
    CHECK(close(first) == 0 && close(second) == 0);
    printf("sum %ld\n", sum);
    return guest_ok();
}
