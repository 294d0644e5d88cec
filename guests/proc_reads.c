// Shows: a file of /proc that is read piece by piece, of which no byte is lost and none comes twice.
// Breaks if: a read in doubt of a file that tells nothing more, since it is about the dead process, is made again where that left it.
#include "guest.h"
#include <fcntl.h>

enum { ROUNDS = 4000, PIECE = 3 };

static void *waits(void *arg)
{
    char byte;

    guest_read_all((int)guest_num(arg), &byte, 1);
    return NULL;
}

int main(int argc, char **argv)
{
    char text[4096];
    int ends[2];

    // Of a process of one thread nobody else moves the position.
    CHECK(argc == 1 && pipe2(ends, O_CLOEXEC) == 0);
    pthread_t other = guest_start(waits, guest_ptr(ends[0]));
    for (int r = 0; r < ROUNDS; r++) {
        int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
        size_t used = 0;
        ssize_t got;

        CHECK(fd >= 0);
        while ((got = read(fd, text + used, PIECE)) > 0)
            used += (size_t)got;
        CHECK(got == 0 && used == strlen(argv[0]) + 1 && memcmp(text, argv[0], used) == 0);
        CHECK(close(fd) == 0);
    }
    CHECK(write(ends[1], "x", 1) == 1);
    guest_join(other);
    return guest_ok();
}
