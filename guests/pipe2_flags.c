// Shows: pipe2 with O_CLOEXEC and O_NONBLOCK: EAGAIN when empty and when full, capacity, FIONREAD, O_DIRECT packets.
// Breaks if: EAGAIN is decided by the standby from a pipe that the primary has filled or emptied since.
#include "guest.h"
#include <sys/ioctl.h>

enum { ROUNDS = 60 };

int main(void)
{
    char block[4096] = { 1 }, back[65536];
    long filled = 0;

    for (int r = 0; r < ROUNDS; r++) {
        int ends[2], packets[2], ready;
        CHECK(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
        CHECK(fcntl(ends[0], F_GETFD) == FD_CLOEXEC && (fcntl(ends[1], F_GETFL) & O_NONBLOCK));
        FAILS(read(ends[0], back, 1), EAGAIN);
        CHECK(fcntl(ends[1], F_SETPIPE_SZ, 16384) == 16384);
        while (write(ends[1], block, sizeof block) == sizeof block)
            filled++;
        CHECK(errno == EAGAIN);
        CHECK(ioctl(ends[0], FIONREAD, &ready) == 0 && ready == 16384);
        CHECK(read(ends[0], back, sizeof back) == 16384);
        CHECK(pipe2(packets, O_DIRECT) == 0);
        CHECK(write(packets[1], "first", 5) == 5 && write(packets[1], "second", 6) == 6);
        CHECK(read(packets[0], back, sizeof back) == 5 && read(packets[0], back, sizeof back) == 6);
        for (int i = 0; i < 2; i++)
            CHECK(close(ends[i]) == 0 && close(packets[i]) == 0);
        guest_pause_us(400);
    }
    printf("blocks %ld\n", filled);
    CHECK(filled == 4 * ROUNDS);
    return guest_ok();
}
