// Shows: EPIPE with SIGPIPE ignored, with a handler that counts, and with MSG_NOSIGNAL.
// Breaks if: the error or the signal of a failed write is produced in only one of the copies.
#include "guest.h"
#include <signal.h>
#include <sys/socket.h>

enum { ROUNDS = 60 };

static volatile sig_atomic_t caught;

static void handler(int signal)
{
    (void)signal;
    caught++;
}

int main(void)
{
    int epipes = 0;

    for (int r = 0; r < ROUNDS; r++) {
        int ends[2], pair[2];
        CHECK(pipe(ends) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        CHECK(close(ends[0]) == 0 && close(pair[0]) == 0);
        CHECK(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
        FAILS(write(ends[1], "x", 1), EPIPE);
        CHECK(signal(SIGPIPE, handler) != SIG_ERR);
        FAILS(send(pair[1], "x", 1, MSG_NOSIGNAL), EPIPE);
        CHECK(caught == r);
        FAILS(write(ends[1], "x", 1), EPIPE);
        CHECK(caught == r + 1);
        epipes += 3;
        CHECK(close(ends[1]) == 0 && close(pair[1]) == 0);
        guest_pause_us(400);
    }
    printf("EPIPE %d, SIGPIPE %d\n", epipes, (int)caught);
    return guest_ok();
}
