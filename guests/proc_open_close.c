// Shows: a program that opens, reads and closes a file of /proc again and again, each time by the lowest number that is free.
// Breaks if: whoever takes over takes a number that the program is about to close for a file that nobody knows of.
#include "guest.h"

enum { ROUNDS = 400 };

int main(void)
{
    char text[64];
    int first = -1;

    for (int r = 0; r < ROUNDS; r++) {
        int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
        CHECK(fd >= 0 && (first < 0 || fd == first));
        first = fd;
        CHECK(read(fd, text, sizeof text) == sizeof text);
        CHECK(close(fd) == 0);
        if (r % 8 == 0)
            guest_pause_us(200);
    }
    return guest_ok();
}
