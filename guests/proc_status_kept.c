// Shows: what the kernel tells of the program, read up to the middle of a line, goes on with the rest of that line.
// Breaks if: whoever goes on from a checkpoint goes to the place in the text while the text is still another process's.
#include "guest.h"
#include <sys/prctl.h>

enum { ROUNDS = 80 };

int main(void)
{
    int status = open("/proc/self/status", O_RDONLY | O_CLOEXEC), comm = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
    char text[8];

    CHECK(status >= 0 && comm >= 0 && prctl(PR_SET_NAME, "reader") == 0);
    for (int r = 0; r < ROUNDS; r++) {
        CHECK(lseek(status, 0, SEEK_SET) == 0 && read(status, text, 6) == 6 && memcmp(text, "Name:\t", 6) == 0);
        CHECK(lseek(comm, 2, SEEK_SET) == 2);
        guest_pause_us(1000);
        CHECK(lseek(status, 0, SEEK_CUR) == 6 && read(status, text, 7) == 7 && memcmp(text, "reader\n", 7) == 0);
        CHECK(read(comm, text, sizeof text) == 5 && memcmp(text, "ader\n", 5) == 0);
    }
    CHECK(close(status) == 0 && close(comm) == 0);
    return guest_ok();
}
