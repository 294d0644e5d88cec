// Shows: flock and open-file-description locks hand a file from thread to thread, blocking and not.
// Breaks if: a blocking flock that was granted to a dead primary is asked for again and waits for itself.
#include "guest.h"
#include <sys/file.h>

enum { THREADS = 3, ROUNDS = 40 };

static struct guest_name name;

static void *run(void *arg)
{
    int fd = open(name.s, O_RDWR); /* an open file of its own: that is what owns the lock */
    long n;

    (void)arg;
    CHECK(fd >= 0);
    for (int r = 0; r < ROUNDS; r++) {
        if (r % 2) {
            CHECK(flock(fd, LOCK_EX) == 0);
        } else {
            while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
                CHECK(errno == EWOULDBLOCK);
                guest_pause_us(50);
            }
        }
        CHECK(pread(fd, &n, sizeof n, 0) == sizeof n);
        n++;
        guest_pause_us(50);
        CHECK(pwrite(fd, &n, sizeof n, 0) == sizeof n);
        CHECK(flock(fd, LOCK_UN) == 0);
        struct flock range = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 8, .l_len = 8 };
        CHECK(fcntl(fd, F_OFD_SETLKW, &range) == 0);
        CHECK(pread(fd, &n, sizeof n, 8) == sizeof n);
        n += 2;
        CHECK(pwrite(fd, &n, sizeof n, 8) == sizeof n);
        range.l_type = F_UNLCK;
        CHECK(fcntl(fd, F_OFD_SETLK, &range) == 0);
    }
    CHECK(close(fd) == 0);
    return NULL;
}

int main(void)
{
    pthread_t t[THREADS];
    long n[2] = { 0, 0 };

    guest_scratch();
    name = guest_path("counter");
    int fd = open(name.s, O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0 && write(fd, n, sizeof n) == sizeof n);
    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, NULL);
    for (int i = 0; i < THREADS; i++)
        guest_join(t[i]);
    CHECK(pread(fd, n, sizeof n, 0) == sizeof n);
    CHECK(close(fd) == 0 && unlink(name.s) == 0);
    guest_scratch_end();
    printf("counters %ld %ld\n", n[0], n[1]);
    CHECK(n[0] == THREADS * ROUNDS && n[1] == 2 * THREADS * ROUNDS);
    return guest_ok();
}
