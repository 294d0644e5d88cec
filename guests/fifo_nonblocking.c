// Shows: named pipes opened without waiting: ENXIO with no reader, EAGAIN when empty, end of file with no writer, EPIPE with no reader.
// Breaks if: a standby's end of a named pipe counts as a reader or a writer, or an open that failed is made again and succeeds.
#include "guest.h"
#include <poll.h>
#include <signal.h>

enum { ROUNDS = 60 };

int main(void)
{
    char text[8];
    long sum = 0;

    CHECK(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
    guest_scratch();
    struct guest_name name = guest_path("fifo");
    CHECK(mkfifo(name.s, 0600) == 0);
    FAILS(mkfifo(name.s, 0600), EEXIST);
    for (int r = 0; r < ROUNDS; r++) {
        FAILS(open(name.s, O_WRONLY | O_NONBLOCK), ENXIO);
        int in = open(name.s, O_RDONLY | O_NONBLOCK);
        CHECK(in >= 0 && read(in, text, sizeof text) == 0);
        int out = open(name.s, O_WRONLY | O_NONBLOCK);
        CHECK(out >= 0);
        FAILS(read(in, text, sizeof text), EAGAIN);
        CHECK(write(out, "abc", 3) == 3);
        struct pollfd ready = { in, POLLIN, 0 };
        CHECK(poll(&ready, 1, -1) == 1 && ready.revents == POLLIN);
        CHECK(close(out) == 0 && read(in, text, 2) == 2 && read(in, text, 2) == 1 && text[0] == 'c');
        CHECK(read(in, text, 2) == 0 && poll(&ready, 1, -1) == 1 && ready.revents == POLLHUP);
        out = open(name.s, O_WRONLY);
        CHECK(out >= 0 && close(in) == 0);
        FAILS(write(out, "x", 1), EPIPE);
        struct pollfd broken = { out, POLLOUT, 0 };
        CHECK(poll(&broken, 1, -1) == 1 && (broken.revents & POLLERR));
        CHECK(close(out) == 0);
        int both = open(name.s, O_RDWR);
        long n = r;
        CHECK(both >= 0 && write(both, &n, sizeof n) == sizeof n && read(both, &n, sizeof n) == sizeof n && n == r);
        CHECK(close(both) == 0);
        sum += n;
        guest_pause_us(800);
    }
    CHECK(unlink(name.s) == 0);
    guest_scratch_end();
    printf("sum %ld\n", sum);
    return guest_ok();
}
