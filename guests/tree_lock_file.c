// Shows: lock files as mail programs and editors make them: O_EXCL, link and its count, a number inside, stale ones taken over; processes take turns.
// Breaks if: an exclusive creation in doubt is made again and fails against itself, or a lock is left of a holder that goes on.
// kit: tree
#include "guest.h"
#include <signal.h>
#include <sys/wait.h>

enum { CHILDREN = 3, ROUNDS = 25 };

static struct guest_name lock, count;

static void take(const char *own, int by_link)
{
    char text[32];
    int length = snprintf(text, sizeof text, "%d\n", (int)getpid());

    for (;;) {
        struct stat st;
        int fd = open(by_link ? own : lock.s, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd >= 0) {
            CHECK(write(fd, text, (size_t)length) == length && close(fd) == 0);
            if (!by_link)
                return;
            int linked = link(own, lock.s);
            CHECK(linked == 0 || errno == EEXIST);
            CHECK(stat(own, &st) == 0 && st.st_nlink == (linked == 0 ? 2u : 1u) && unlink(own) == 0);
            if (linked == 0)
                return;
        } else {
            CHECK(errno == EEXIST);
        }
        guest_pause_us(700);
    }
}

static void child(int me)
{
    char name[32];

    snprintf(name, sizeof name, "own%d", me);
    struct guest_name own = guest_path(name);
    for (int r = 0; r < ROUNDS; r++) {
        long n;
        take(own.s, r % 2);
        int fd = open(count.s, O_RDWR | O_CLOEXEC), holder = open(lock.s, O_RDONLY | O_CLOEXEC);
        CHECK(holder >= 0 && read(holder, name, sizeof name - 1) > 0 && atoi(name) == getpid() && close(holder) == 0);
        CHECK(fd >= 0 && read(fd, &n, sizeof n) == sizeof n);
        n++;
        guest_pause_us(300);
        CHECK(pwrite(fd, &n, sizeof n, 0) == sizeof n && close(fd) == 0 && unlink(lock.s) == 0);
        guest_pause_us(1500);
    }
    _exit(0);
}

int main(void)
{
    long n = 0;
    int status;

    guest_scratch();
    lock = guest_path("lock");
    count = guest_path("count");
    int fd = open(count.s, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && write(fd, &n, sizeof n) == sizeof n);
    for (int i = 0; i < CHILDREN; i++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
            child(i);
    }
    for (int i = 0; i < CHILDREN; i++)
        CHECK(wait(&status) > 0 && status == 0);
    CHECK(pread(fd, &n, sizeof n, 0) == sizeof n && n == CHILDREN * ROUNDS && close(fd) == 0 && unlink(count.s) == 0);
    FAILS(access(lock.s, F_OK), ENOENT);
    guest_scratch_end();
    printf("count %ld\n", n);
    return guest_ok();
}
