// Shows: a file opened to be read and appended to, in a program with a second thread: reads go on from where the last one stopped.
// Breaks if: a read in doubt of such a file is judged by its size, which no read moves, and is made twice.
#include "guest.h"

enum { RECORDS = 40, ROUNDS = 60, RECORD = 48 };

static int ends[2];

static void *idle(void *arg)
{
    char byte;

    guest_read_all(ends[0], &byte, 1);
    return arg;
}

static void make(char *record, int n)
{
    memset(record, '.', RECORD);
    record[snprintf(record, RECORD, "%d %llx", n, (unsigned long long)guest_mix((uint64_t)n))] = ' ';
}

int main(void)
{
    char record[RECORD], got[RECORD];

    guest_scratch();
    struct guest_name name = guest_path("data");
    int fd = open(name.s, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && pipe(ends) == 0);
    pthread_t thread = guest_start(idle, NULL);
    for (int n = 0; n < RECORDS; n++) {
        make(record, n);
        CHECK(write(fd, record, RECORD) == RECORD);
    }
    for (int r = 0; r < ROUNDS; r++) {
        CHECK(lseek(fd, 0, SEEK_SET) == 0);
        for (int n = 0; n < RECORDS; n++) {
            make(record, n);
            CHECK(read(fd, got, RECORD) == RECORD && memcmp(got, record, RECORD) == 0);
        }
        CHECK(read(fd, got, RECORD) == 0);
        guest_pause_us(1000);
    }
    guest_write_all(ends[1], "l", 1);
    guest_join(thread);
    CHECK(lseek(fd, 0, SEEK_CUR) == RECORDS * RECORD && close(fd) == 0 && unlink(name.s) == 0);
    guest_scratch_end();
    printf("records %d\n", RECORDS * ROUNDS);
    return guest_ok();
}
