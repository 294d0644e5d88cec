// Shows: O_DIRECT: reads and writes of whole sectors to aligned memory, small and larger than any piece of a log.
// Breaks if: input is read to an address of the runtime's own, which is no multiple of a sector: EINVAL.
#include "guest.h"

enum { ROUNDS = 40, SECTOR = 4096, LARGE = 96 * SECTOR };

int main(void)
{
    uint64_t digest = 0;
    unsigned char *out, *back;

    guest_scratch();
    struct guest_name name = guest_path("direct");
    int fd = open(name.s, O_RDWR | O_CREAT | O_DIRECT, 0600);
    if (fd < 0)
        fd = open(name.s, O_RDWR | O_CREAT, 0600); /* not every file system has it */
    CHECK(fd >= 0);
    ZERO(posix_memalign((void **)&out, SECTOR, LARGE));
    ZERO(posix_memalign((void **)&back, SECTOR, LARGE));
    for (int r = 0; r < ROUNDS; r++) {
        size_t bytes = r % 4 == 3 ? LARGE : (size_t)(1 + r % 4) * SECTOR;
        guest_fill(out, bytes, (uint64_t)r);
        CHECK(pwrite(fd, out, bytes, (off_t)SECTOR * r) == (ssize_t)bytes);
        memset(back, 0, bytes);
        CHECK(pread(fd, back, bytes, (off_t)SECTOR * r) == (ssize_t)bytes);
        CHECK(memcmp(out, back, bytes) == 0);
        CHECK(lseek(fd, (off_t)SECTOR * r, SEEK_SET) == (off_t)SECTOR * r);
        CHECK(read(fd, back, SECTOR) == SECTOR && memcmp(out, back, SECTOR) == 0);
        digest ^= guest_digest(back, bytes);
        guest_pause_us(500);
    }
    CHECK(close(fd) == 0 && unlink(name.s) == 0);
    free(out);
    free(back);
    guest_scratch_end();
    printf("digest %016lx\n", (unsigned long)digest);
    return guest_ok();
}
