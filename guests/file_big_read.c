// Shows: one read() and one write() of 16 MiB are whole on a regular file.
// Breaks if: an event larger than a ring becomes a short read, or its bytes do not reach the standby.
#include "guest.h"

enum { SIZE = 16 << 20, ROUNDS = 3 };

int main(void)
{
    unsigned char *data = (unsigned char *)malloc(SIZE);

    CHECK(data != NULL);
    guest_scratch();
    struct guest_name name = guest_path("big");
    int fd = open(name.s, O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0);
    for (uint64_t i = 0; i < SIZE; i += 8) {
        uint64_t x = guest_mix(i);
        memcpy(data + i, &x, 8);
    }
    CHECK(write(fd, data, SIZE) == SIZE);
    for (int r = 0; r < ROUNDS; r++) {
        memset(data, 0xee, SIZE);
        CHECK(lseek(fd, 0, SEEK_SET) == 0);
        CHECK(read(fd, data, SIZE) == SIZE);
        for (uint64_t i = 0; i < SIZE; i += 8 * 511) {
            uint64_t x = guest_mix(i);
            CHECK(memcmp(data + i, &x, 8) == 0);
        }
        guest_pause_us(1000);
    }
    CHECK(close(fd) == 0 && unlink(name.s) == 0);
    guest_scratch_end();
    printf("digest of the end %016lx\n", (unsigned long)guest_digest(data + SIZE - 65536, 65536));
    return guest_ok();
}
