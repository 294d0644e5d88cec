// Shows: ftruncate, truncate, posix_fallocate, holes read as zeros, fsync and fdatasync.
// Breaks if: a size change is repeated by a copy after the file has grown again.
#include "guest.h"

enum { ROUNDS = 50 };

int main(void)
{
    unsigned char block[4096], back[4096];

    guest_scratch();
    struct guest_name name = guest_path("sized");
    int fd = open(name.s, O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0);
    for (int r = 0; r < ROUNDS; r++) {
        struct stat st;
        guest_fill(block, sizeof block, (uint64_t)r);
        CHECK(pwrite(fd, block, sizeof block, 0) == sizeof block);
        CHECK(ftruncate(fd, 1000) == 0 && fstat(fd, &st) == 0 && st.st_size == 1000);
        CHECK(truncate(name.s, 9000) == 0 && fstat(fd, &st) == 0 && st.st_size == 9000);
        CHECK(pread(fd, back, sizeof back, 0) == sizeof back);
        CHECK(memcmp(block, back, 1000) == 0);
        for (int i = 1000; i < 4096; i++)
            CHECK(back[i] == 0);
        ZERO(posix_fallocate(fd, 0, 20000 + r));
        CHECK(fstat(fd, &st) == 0 && st.st_size == 20000 + r);
        CHECK(ftruncate(fd, 0) == 0 && read(fd, back, 1) == 0);
        if (r % 10 == 0)
            CHECK(fdatasync(fd) == 0 && fsync(fd) == 0);
        guest_pause_us(400);
    }
    CHECK(close(fd) == 0 && unlink(name.s) == 0);
    guest_scratch_end();
    printf("rounds %d\n", ROUNDS);
    return guest_ok();
}
