// Shows: flock over a fork is one lock of both processes, open-file-description and flock locks elsewhere exclude; waits for them go round.
// Breaks if: a lock ends with the process that took it while others have its open file, or is given to two.
// kit: tree
#include "guest.h"
#include <sys/file.h>
#include <sys/wait.h>

enum { CHILDREN = 3, ROUNDS = 40 };

static struct guest_name name;

static void lock(int fd, short kind)
{
    struct flock want = { .l_type = kind, .l_whence = SEEK_SET, .l_start = 10, .l_len = 5 };

    while (fcntl(fd, F_OFD_SETLKW, &want) != 0)
        CHECK(errno == EINTR);
}

static void child(int inherited)
{
    int own = open(name.s, O_RDWR | O_CLOEXEC);

    CHECK(own >= 0);
    for (int r = 0; r < ROUNDS; r++) {
        long n;
        lock(own, F_WRLCK);
        CHECK(pread(own, &n, sizeof n, 0) == sizeof n);
        n++;
        guest_pause_us(500);
        CHECK(pwrite(own, &n, sizeof n, 0) == sizeof n);
        lock(own, F_UNLCK);
        if (r % 8 == 0) {
            /* The lock that was taken before the fork is this process's as well. */
            FAILS(flock(own, LOCK_EX | LOCK_NB), EWOULDBLOCK);
            CHECK(flock(inherited, LOCK_EX | LOCK_NB) == 0);
        }
        guest_pause_us(2000);
    }
    CHECK(close(own) == 0);
    _exit(0);
}

int main(void)
{
    struct flock test = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 12, .l_len = 1 };
    long n = 0;
    int status;

    guest_scratch();
    name = guest_path("locked");
    int fd = open(name.s, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600), other = open(name.s, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0 && other >= 0 && pwrite(fd, &n, sizeof n, 0) == sizeof n && flock(fd, LOCK_EX) == 0);
    for (int i = 0; i < CHILDREN; i++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
            child(fd);
    }
    for (int i = 0; i < CHILDREN; i++) {
        FAILS(flock(other, LOCK_SH | LOCK_NB), EWOULDBLOCK);
        CHECK(wait(&status) > 0 && status == 0);
    }
    CHECK(pread(fd, &n, sizeof n, 0) == sizeof n && n == CHILDREN * ROUNDS);
    lock(fd, F_RDLCK);
    CHECK(fcntl(other, F_OFD_GETLK, &test) == 0 && test.l_type == F_RDLCK && test.l_pid == -1 && test.l_start == 10);
    lock(fd, F_UNLCK);
    CHECK(flock(fd, LOCK_UN) == 0 && flock(other, LOCK_EX | LOCK_NB) == 0);
    CHECK(close(fd) == 0 && close(other) == 0 && unlink(name.s) == 0);
    guest_scratch_end();
    printf("count %ld\n", n);
    return guest_ok();
}
