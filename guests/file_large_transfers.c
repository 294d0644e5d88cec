// Shows: large reads and writes of a file, plain, with vectors and appending: every byte is at its place, once.
// Breaks if: a transfer that a kill has cut short, or one that is in doubt, is repeated or taken as whole;
//            or whoever follows a log that goes on puts the pieces of one that was begun again behind those of the first attempt.
#include "guest.h"
#include <sys/uio.h>

enum { SIZE = 1 << 20, HALF = SIZE / 2, ROUNDS = 12 };

int main(void)
{
    unsigned char *data = (unsigned char *)malloc(SIZE), *back = (unsigned char *)malloc(SIZE);
    uint64_t digest = 0;

    guest_scratch();
    struct guest_name name = guest_path("large"), log = guest_path("log");
    int fd = open(name.s, O_RDWR | O_CREAT, 0600);
    int tail = open(log.s, O_RDWR | O_CREAT | O_APPEND, 0600);
    CHECK(fd >= 0 && tail >= 0);
    for (int r = 0; r < ROUNDS; r++) {
        struct iovec out[] = { { data, HALF }, { data + HALF, HALF } }, in[] = { { back, 100 }, { back + 100, SIZE - 100 } };
        guest_fill(data, SIZE, (uint64_t)r);
        CHECK(lseek(fd, 0, SEEK_SET) == 0);
        CHECK(write(fd, data, SIZE) == SIZE && lseek(fd, 0, SEEK_CUR) == SIZE);
        CHECK(writev(fd, out, 2) == SIZE && lseek(fd, -SIZE, SEEK_CUR) == SIZE);
        CHECK(readv(fd, in, 2) == SIZE && memcmp(data, back, SIZE) == 0);
        CHECK(lseek(fd, 0, SEEK_SET) == 0);
        CHECK(read(fd, back, SIZE) == SIZE && memcmp(data, back, SIZE) == 0);
        CHECK(read(fd, back, HALF) == HALF && memcmp(data, back, HALF) == 0);
        CHECK(write(tail, data, SIZE) == SIZE && lseek(tail, 0, SEEK_END) == (off_t)(r + 1) * SIZE);
        CHECK(pread(tail, back, SIZE, (off_t)r * SIZE) == SIZE && memcmp(data, back, SIZE) == 0);
        digest = guest_mix(digest ^ guest_digest(back, SIZE));
    }
    CHECK(close(fd) == 0 && close(tail) == 0 && unlink(name.s) == 0 && unlink(log.s) == 0);
    guest_scratch_end();
    printf("digest %016lx\n", (unsigned long)digest);
    return guest_ok();
}
