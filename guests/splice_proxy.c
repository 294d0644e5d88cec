// Shows: a proxy that carries a stream from one TCP connection to another by splice over a pipe, with a copy by tee, without looking at a byte.
// Breaks if: bytes that are in the pipe of the proxy when its copy takes over are carried twice, or not at all.
#include "net.h"
#include <poll.h>

enum { TOTAL = 400000, STEP = 10000 };

static int from[2], to[2];

static void *client(void *arg)
{
    static unsigned char data[STEP];

    (void)arg;
    for (int at = 0; at < TOTAL; at += STEP) {
        guest_fill(data, STEP, (uint64_t)at);
        guest_write_all(from[0], data, STEP);
        guest_pause_us(1500);
    }
    CHECK(shutdown(from[0], SHUT_WR) == 0);
    return NULL;
}

static void *server(void *arg)
{
    static unsigned char data[STEP], wanted[STEP];
    char more;

    (void)arg;
    for (int at = 0; at < TOTAL; at += STEP) {
        guest_fill(wanted, STEP, (uint64_t)at);
        guest_read_all(to[1], data, STEP);
        CHECK(memcmp(data, wanted, STEP) == 0);
    }
    CHECK(read(to[1], &more, 1) == 0);
    return NULL;
}

int main(void)
{
    int pipe_ends[2], copy[2], null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    long carried = 0, seen = 0;

    net_pair(from);
    net_pair(to);
    CHECK(null >= 0 && pipe2(pipe_ends, O_CLOEXEC) == 0 && pipe2(copy, O_CLOEXEC) == 0);
    pthread_t c = guest_start(client, NULL), s = guest_start(server, NULL);
    for (;;) {
        struct pollfd ready = { from[1], POLLIN, 0 };
        CHECK(poll(&ready, 1, -1) == 1);
        ssize_t n = splice(from[1], NULL, pipe_ends[1], NULL, 30000, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
        CHECK(n >= 0);
        if (n == 0)
            break;
        ssize_t t = tee(pipe_ends[0], copy[1], (size_t)n, 0);
        CHECK(t > 0 && t <= n);
        for (ssize_t left = t; left > 0;) {
            ssize_t m = splice(copy[0], NULL, null, NULL, (size_t)left, 0);
            CHECK(m > 0);
            left -= m;
            seen += m;
        }
        for (ssize_t left = n; left > 0;) {
            ssize_t m = splice(pipe_ends[0], NULL, to[0], NULL, (size_t)left, SPLICE_F_MORE);
            CHECK(m > 0);
            left -= m;
            carried += m;
        }
    }
    CHECK(shutdown(to[0], SHUT_WR) == 0);
    guest_join(c);
    guest_join(s);
    CHECK(seen > 0 && seen <= carried);
    printf("carried %ld\n", carried);
    return guest_ok();
}
