// Shows: parent and two children share a counter in a file under a POSIX record lock, another under flock, waiting and trying.
// Breaks if: a lock is let go with the process that took it while its copy goes on, or is held by a copy that is gone.
// kit: tree
#include "guest.h"
#include <sys/file.h>
#include <sys/wait.h>

enum { CHILDREN = 2, ROUNDS = 200 };

static struct guest_name name;

static void add(int fd, off_t at, long amount)
{
    long n;

    CHECK(pread(fd, &n, sizeof n, at) == sizeof n);
    guest_pause_us(400);
    n += amount;
    CHECK(pwrite(fd, &n, sizeof n, at) == sizeof n);
}

static void change(long rounds)
{
    /* flock belongs to the open file: every process needs one of its own. */
    int fd = open(name.s, O_RDWR);

    CHECK(fd >= 0);
    for (long r = 0; r < rounds; r++) {
        struct flock range = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = sizeof(long) };
        CHECK(fcntl(fd, F_SETLKW, &range) == 0);
        add(fd, 0, 1);
        range.l_type = F_UNLCK;
        CHECK(fcntl(fd, F_SETLK, &range) == 0);
        if (r % 2) {
            CHECK(flock(fd, LOCK_EX) == 0);
        } else {
            while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
                CHECK(errno == EWOULDBLOCK);
                guest_pause_us(100);
            }
        }
        add(fd, sizeof(long), 2);
        CHECK(flock(fd, LOCK_UN) == 0);
        guest_pause_us(200);
    }
    CHECK(close(fd) == 0);
}

int main(void)
{
    long n[2] = { 0, 0 };
    int status;

    guest_scratch();
    name = guest_path("counters");
    int fd = open(name.s, O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0 && write(fd, n, sizeof n) == sizeof n && close(fd) == 0);
    for (int c = 0; c < CHILDREN; c++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            change(ROUNDS);
            _exit(c);
        }
    }
    change(ROUNDS);
    for (int c = 0; c < CHILDREN; c++)
        CHECK(waitpid(-1, &status, 0) > 0 && WIFEXITED(status) && WEXITSTATUS(status) < CHILDREN);
    fd = open(name.s, O_RDONLY);
    CHECK(fd >= 0 && read(fd, n, sizeof n) == sizeof n && close(fd) == 0 && unlink(name.s) == 0);
    guest_scratch_end();
    printf("counters %ld %ld\n", n[0], n[1]);
    CHECK(n[0] == (CHILDREN + 1) * ROUNDS && n[1] == 2 * n[0]);
    return guest_ok();
}
