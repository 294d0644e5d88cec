// Shows: the ends of TCP connections: half closed, closed at both sides, reset, refused; each end is seen once, as it was.
// Breaks if: the FIN of a closed connection is counted as a byte, or an error that is told once is asked for again.
// kit: no-checkpoint connections are reset
#include "net.h"
#include <poll.h>

enum { ROUNDS = 60 };

static struct sockaddr_in address;
static int listener;

/* Both ends of a new connection. */
static void connected(int pair[2])
{
    pair[0] = net_connect(&address);
    pair[1] = accept(listener, NULL, NULL);
    CHECK(pair[1] >= 0);
}

static void refused(void)
{
    struct sockaddr_in nobody;
    int taken = net_bound(SOCK_STREAM, &nobody), fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), error = 0;
    socklen_t length = sizeof error;
    struct pollfd ready = { fd, POLLOUT, 0 };

    /* Bound and not listening: whoever connects is refused. */
    CHECK(fd >= 0);
    FAILS(connect(fd, (struct sockaddr *)&nobody, sizeof nobody), EINPROGRESS);
    CHECK(poll(&ready, 1, -1) == 1);
    CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == ECONNREFUSED);
    CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0);
    CHECK(close(fd) == 0 && close(taken) == 0);
}

static void reset(void)
{
    struct linger none = { 1, 0 };
    char c[3];
    int pair[2];

    connected(pair);
    guest_write_all(pair[1], "abc", 3);
    guest_read_all(pair[0], c, 3);
    CHECK(setsockopt(pair[1], SOL_SOCKET, SO_LINGER, &none, sizeof none) == 0);
    CHECK(close(pair[1]) == 0);
    FAILS(read(pair[0], c, 1), ECONNRESET);
    CHECK(read(pair[0], c, 1) == 0);
    CHECK(close(pair[0]) == 0);
}

static void in_order(int r)
{
    char c[8];
    int pair[2];

    connected(pair);
    guest_write_all(pair[0], "question", 8);
    CHECK(shutdown(pair[0], SHUT_WR) == 0);
    guest_read_all(pair[1], c, 8);
    CHECK(read(pair[1], c, 1) == 0);
    guest_write_all(pair[1], "answer", 6);
    if (r % 2)
        CHECK(close(pair[1]) == 0);
    else
        CHECK(shutdown(pair[1], SHUT_RDWR) == 0);
    guest_read_all(pair[0], c, 6);
    for (int i = 0; i < 3; i++)
        CHECK(read(pair[0], c, 1 + (size_t)i) == 0);
    CHECK(close(pair[0]) == 0 && (r % 2 || close(pair[1]) == 0));
}

int main(void)
{
    listener = net_bound(SOCK_STREAM, &address);
    CHECK(listen(listener, 8) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        in_order(r);
        refused();
        reset();
        guest_pause_us(100);
    }
    CHECK(close(listener) == 0);
    printf("rounds %d\n", ROUNDS);
    return guest_ok();
}
