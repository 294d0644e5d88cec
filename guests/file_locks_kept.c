// Shows: a program keeps its locks on files, of all three kinds: another opening of the file does not get them.
// Breaks if: a copy, or whoever goes on from a checkpoint, has the descriptor without its lock.
#include "guest.h"
#include <fcntl.h>
#include <sys/file.h>

enum { ROUNDS = 60, FIRST = 10, LENGTH = 5 };

static int opened(const char *name)
{
    int fd = open(guest_path(name).s, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

    CHECK(fd >= 0);
    return fd;
}

/* What another opening of the file, which is no process of its own, would meet there. */
static struct flock met(int fd, int kind, off_t at)
{
    struct flock lock = { .l_type = (short)kind, .l_whence = SEEK_SET, .l_start = at, .l_len = 1 };

    ZERO(fcntl(fd, F_OFD_GETLK, &lock));
    return lock;
}

int main(void)
{
    guest_scratch();
    int whole = opened("whole"), other_whole = opened("whole");
    int file = opened("file"), other_file = opened("file");
    /* Never closed: that would give back what the process has. */
    int mine = opened("mine"), other_mine = opened("mine");
    struct flock part = { .l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = FIRST, .l_len = LENGTH };

    ZERO(flock(whole, LOCK_EX));
    ZERO(fcntl(file, F_OFD_SETLK, &part));
    part.l_type = F_WRLCK;
    ZERO(fcntl(mine, F_SETLK, &part));
    part.l_start = 1000;
    part.l_len = 0;
    ZERO(fcntl(mine, F_SETLK, &part));
    for (int r = 0; r < ROUNDS; r++) {
        FAILS(flock(other_whole, LOCK_EX | LOCK_NB), EWOULDBLOCK);
        FAILS(flock(other_whole, LOCK_SH | LOCK_NB), EWOULDBLOCK);
        CHECK(met(other_file, F_WRLCK, FIRST).l_type == F_RDLCK);
        CHECK(met(other_file, F_RDLCK, FIRST).l_type == F_UNLCK);
        CHECK(met(other_file, F_WRLCK, FIRST + LENGTH).l_type == F_UNLCK);
        CHECK(met(other_mine, F_RDLCK, FIRST + LENGTH - 1).l_type == F_WRLCK);
        CHECK(met(other_mine, F_WRLCK, FIRST + LENGTH).l_type == F_UNLCK);
        CHECK(met(other_mine, F_RDLCK, 1 << 20).l_type == F_WRLCK);
        guest_pause_us(1500);
    }
    static const char *const names[] = { "whole", "file", "mine" };
    for (int i = 0; i < 3; i++)
        ZERO(unlink(guest_path(names[i]).s));
    guest_scratch_end();
    return guest_ok();
}
