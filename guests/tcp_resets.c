// Shows: a connection that is closed with SO_LINGER 0, or with unread bytes, is reset: ECONNRESET once, then end of file, then EPIPE.
// Breaks if: the reset that the dead primary was told of is told again, or not at all, or SIGPIPE comes in its place.
#include "net.h"
#include <poll.h>
#include <signal.h>

enum { ROUNDS = 60 };

static volatile sig_atomic_t pipes;

static void on_pipe(int signal)
{
    (void)signal;
    pipes++;
}

int main(void)
{
    struct sigaction act = { .sa_handler = on_pipe };
    struct linger hard = { 1, 0 };
    int pair[2];
    char text[8];

    CHECK(sigaction(SIGPIPE, &act, NULL) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        net_pair(pair);
        if (r % 2) {
            CHECK(setsockopt(pair[1], SOL_SOCKET, SO_LINGER, &hard, sizeof hard) == 0);
        } else {
            struct pollfd there = { pair[1], POLLIN, 0 };
            CHECK(send(pair[0], "unread", 6, 0) == 6 && poll(&there, 1, -1) == 1);
        }
        CHECK(close(pair[1]) == 0);
        struct pollfd ends = { pair[0], POLLIN | POLLRDHUP, 0 };
        CHECK(poll(&ends, 1, -1) == 1 && (ends.revents & (POLLERR | POLLHUP)) == (POLLERR | POLLHUP));
        if (r % 3 == 0) {
            int error = 0;
            socklen_t length = sizeof error;
            CHECK(getsockopt(pair[0], SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == ECONNRESET);
        } else {
            FAILS(recv(pair[0], text, sizeof text, 0), ECONNRESET);
        }
        CHECK(recv(pair[0], text, sizeof text, 0) == 0);
        FAILS(send(pair[0], "x", 1, MSG_NOSIGNAL), EPIPE);
        CHECK(pipes == r);
        FAILS(send(pair[0], "x", 1, 0), EPIPE);
        CHECK(pipes == r + 1);
        FAILS(getpeername(pair[0], (struct sockaddr *)text, &(socklen_t){ 8 }), ENOTCONN);
        CHECK(close(pair[0]) == 0);
        guest_pause_us(1000);
    }
    printf("signals %d\n", (int)pipes);
    return guest_ok();
}
