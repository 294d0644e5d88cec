// Shows: dup, dup2, dup3, fcntl (F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC): lowest numbers, shared offset.
// Breaks if: the runtime's own descriptors take numbers that the guest expects, or a standby's call changes the shared table.
#include "guest.h"

enum { ROUNDS = 80 };

int main(void)
{
    guest_scratch();
    struct guest_name name = guest_path("file");
    int fd = open(name.s, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    for (int r = 0; r < ROUNDS; r++) {
        char c;
        CHECK(lseek(fd, 0, SEEK_SET) == 0);
        CHECK(ftruncate(fd, 0) == 0);
        int a = dup(fd), b = dup(fd);
        CHECK(a >= 0 && b > a);
        CHECK(close(a) == 0);
        RETURNS(dup(fd), a); /* the lowest free number, which POSIX promises */
        RETURNS(dup2(fd, 200), 200);
        RETURNS(dup2(fd, fd), fd);
        RETURNS(dup3(fd, 201, O_CLOEXEC), 201);
        FAILS(dup3(fd, fd, 0), EINVAL);
        CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC && fcntl(200, F_GETFD) == 0 && fcntl(201, F_GETFD) == FD_CLOEXEC);
        CHECK(fcntl(200, F_SETFD, FD_CLOEXEC) == 0 && fcntl(200, F_GETFD) == FD_CLOEXEC);
        RETURNS(fcntl(fd, F_DUPFD, 150), 150);
        RETURNS(fcntl(fd, F_DUPFD_CLOEXEC, 150), 151);
        CHECK(write(a, "a", 1) == 1 && write(b, "b", 1) == 1 && write(200, "c", 1) == 1 && write(151, "d", 1) == 1);
        CHECK(lseek(fd, 0, SEEK_CUR) == 4); /* one open file, one offset */
        CHECK(pread(201, &c, 1, 2) == 1 && c == 'c');
        CHECK(fcntl(fd, F_SETFL, O_APPEND) == 0 && (fcntl(b, F_GETFL) & O_APPEND));
        CHECK(fcntl(fd, F_SETFL, 0) == 0 && (fcntl(b, F_GETFL) & O_ACCMODE) == O_RDWR);
        CHECK(close(a) == 0 && close(b) == 0 && close(150) == 0);
        CHECK(close_range(151, 201, 0) == 0);
        FAILS(fcntl(200, F_GETFD), EBADF);
        guest_pause_us(300);
    }
    CHECK(close(fd) == 0 && unlink(name.s) == 0);
    guest_scratch_end();
    printf("rounds %d\n", ROUNDS);
    return guest_ok();
}
