// Shows: threads that hold a lock of a file in turn, each by an open file of its own, and count under it: flock and OFD locks.
// Breaks if: a lock in doubt is granted to two, or given back a second time when another has it.
#include "guest.h"
#include <sys/file.h>

enum { KINDS = 2, EACH = 3, ROUNDS = 700 };

static struct guest_name names[KINDS];
/* Not volatile by need: each is changed under its file's lock only. */
static int inside[KINDS];

static void set(int fd, int kind, int held)
{
    struct flock whole = { .l_type = held ? F_WRLCK : F_UNLCK, .l_whence = SEEK_SET };

    if (kind == 0) {
        while (flock(fd, held ? LOCK_EX : LOCK_UN) != 0)
            CHECK(errno == EINTR);
    } else {
        while (fcntl(fd, F_OFD_SETLKW, &whole) != 0)
            CHECK(errno == EINTR);
    }
}

static void *count(void *arg)
{
    int kind = (int)guest_num(arg);
    int fd = open(names[kind].s, O_RDWR | O_CLOEXEC);
    uint64_t n;

    CHECK(fd >= 0);
    for (int r = 0; r < ROUNDS; r++) {
        set(fd, kind, 1);
        CHECK(__atomic_fetch_add(&inside[kind], 1, __ATOMIC_SEQ_CST) == 0);
        CHECK(pread(fd, &n, sizeof n, 0) == sizeof n);
        n++;
        CHECK(pwrite(fd, &n, sizeof n, 0) == sizeof n);
        CHECK(__atomic_fetch_sub(&inside[kind], 1, __ATOMIC_SEQ_CST) == 1);
        set(fd, kind, 0);
    }
    CHECK(close(fd) == 0);
    return NULL;
}

int main(void)
{
    pthread_t threads[KINDS * EACH];
    uint64_t n = 0;

    guest_scratch();
    for (int kind = 0; kind < KINDS; kind++) {
        names[kind] = guest_path(kind ? "ofd" : "flock");
        int fd = open(names[kind].s, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
        CHECK(fd >= 0 && pwrite(fd, &n, sizeof n, 0) == sizeof n && close(fd) == 0);
    }
    for (int i = 0; i < KINDS * EACH; i++)
        threads[i] = guest_start(count, guest_ptr(i % KINDS));
    for (int i = 0; i < KINDS * EACH; i++)
        guest_join(threads[i]);
    for (int kind = 0; kind < KINDS; kind++) {
        int fd = open(names[kind].s, O_RDONLY | O_CLOEXEC);
        CHECK(fd >= 0 && read(fd, &n, sizeof n) == sizeof n && n == EACH * ROUNDS && close(fd) == 0);
        CHECK(unlink(names[kind].s) == 0);
    }
    guest_scratch_end();
    printf("%d threads, %d rounds\n", KINDS * EACH, ROUNDS);
    return guest_ok();
}
