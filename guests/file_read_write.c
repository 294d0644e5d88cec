// Shows: open, read, write, lseek, pread, pwrite: one descriptor's offset shared by many threads, each byte once.
// Breaks if: a write that was done but not logged is done again after a failover, or the offset moves twice.
#include "guest.h"

enum { THREADS = 3, ROUNDS = 60, RECORD = 64 };

static int fd;

static void *run(void *arg)
{
    char record[RECORD];

    for (int r = 0; r < ROUNDS; r++) {
        memset(record, '.', sizeof record);
        int n = snprintf(record, sizeof record, "%ld %d", guest_num(arg), r);
        record[n] = '.';
        record[RECORD - 1] = '\n';
        CHECK(write(fd, record, RECORD) == RECORD); /* the kernel moves the shared offset */
        guest_pause_us(300);
    }
    return NULL;
}

int main(void)
{
    unsigned char seen[THREADS][ROUNDS] = { 0 };
    pthread_t t[THREADS];
    char record[RECORD];

    guest_scratch();
    struct guest_name name = guest_path("data");
    fd = open(name.s, O_RDWR | O_CREAT | O_EXCL, 0600);
    CHECK(fd >= 0);
    FAILS(open(name.s, O_RDWR | O_CREAT | O_EXCL, 0600), EEXIST);
    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, guest_ptr(i));
    for (int i = 0; i < THREADS; i++)
        guest_join(t[i]);
    CHECK(lseek(fd, 0, SEEK_CUR) == THREADS * ROUNDS * RECORD);
    CHECK(lseek(fd, 0, SEEK_END) == THREADS * ROUNDS * RECORD);
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    for (int i = 0; i < THREADS * ROUNDS; i++) {
        int thread, round;
        guest_read_all(fd, record, RECORD);
        CHECK(record[RECORD - 1] == '\n' && sscanf(record, "%d %d", &thread, &round) == 2);
        CHECK(seen[thread][round]++ == 0);
    }
    CHECK(read(fd, record, RECORD) == 0);
    CHECK(pwrite(fd, "P", 1, 10) == 1 && pread(fd, record, 1, 10) == 1 && record[0] == 'P');
    CHECK(lseek(fd, 0, SEEK_CUR) == THREADS * ROUNDS * RECORD);
    CHECK(close(fd) == 0);
    FAILS(read(fd, record, 1), EBADF);
    CHECK(unlink(name.s) == 0);
    guest_scratch_end();
    printf("records %d\n", THREADS * ROUNDS);
    return guest_ok();
}
