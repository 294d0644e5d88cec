// Shows: a POSIX record lock, taken once, is in force for the program's whole life; only the locked bytes conflict.
// Breaks if: anybody closes a descriptor of that file in the shared table: the lock is gone at once, without an error.
#include "guest.h"

enum { ROUNDS = 80 };

static short conflict(int fd, off_t start)
{
    /* An open-file-description lock has another owner than the process, so the kernel answers
     * here what a second process would see. */
    struct flock probe = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = start, .l_len = 1 };

    CHECK(fcntl(fd, F_OFD_GETLK, &probe) == 0);
    return probe.l_type;
}

int main(void)
{
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 100 };
    int seen = 0;

    guest_scratch();
    struct guest_name name = guest_path("locked"), other = guest_path("other");
    int fd = open(name.s, O_RDWR | O_CREAT, 0600), second = open(name.s, O_RDWR);
    CHECK(fd >= 0 && second >= 0);
    CHECK(fcntl(fd, F_SETLK, &lock) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        CHECK(conflict(second, 0) == F_WRLCK && conflict(second, 99) == F_WRLCK);
        CHECK(conflict(second, 100) == F_UNLCK);
        struct flock ofd = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 50, .l_len = 1 };
        FAILS(fcntl(second, F_OFD_SETLK, &ofd), EAGAIN);
        /* Work on another file, with opens and closes, must not matter. */
        int busy = open(other.s, O_RDWR | O_CREAT, 0600);
        CHECK(busy >= 0 && write(busy, "x", 1) == 1 && close(busy) == 0);
        seen++;
        guest_pause_us(400);
    }
    lock.l_type = F_UNLCK;
    CHECK(fcntl(fd, F_SETLK, &lock) == 0 && conflict(second, 0) == F_UNLCK);
    CHECK(close(fd) == 0 && close(second) == 0 && unlink(name.s) == 0 && unlink(other.s) == 0);
    guest_scratch_end();
    printf("in force %d times\n", seen);
    return guest_ok();
}
