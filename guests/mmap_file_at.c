// Shows: a private mapping of a file of some MiB at an address that must be free: it lies there, with the file's bytes, each time.
// Breaks if: a copy takes over before it has been told all of the mapping's bytes, and its own first attempt is in the way.
#include "guest.h"
#include <sys/mman.h>

enum { SIZE = 4 << 20, PAGE = 4096, ROUNDS = 24 };

int main(void)
{
    unsigned char *data = (unsigned char *)malloc(SIZE);
    uint64_t digest = 0;

    guest_scratch();
    struct guest_name name = guest_path("mapped");
    int fd = open(name.s, O_RDWR | O_CREAT, 0600);
    CHECK(data != NULL && fd >= 0 && ftruncate(fd, SIZE) == 0);
    unsigned char *at = (unsigned char *)mmap(NULL, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED && munmap(at, SIZE) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        guest_fill(data, SIZE, (uint64_t)r);
        CHECK(pwrite(fd, data, SIZE, 0) == SIZE);
        CHECK(mmap(at, SIZE, PROT_READ, MAP_PRIVATE | MAP_FIXED_NOREPLACE, fd, 0) == at);
        for (int p = 0; p < SIZE; p += 16 * PAGE)
            CHECK(memcmp(at + p, data + p, PAGE) == 0);
        digest = guest_mix(digest ^ guest_digest(at, SIZE));
        CHECK(munmap(at, SIZE) == 0);
    }
    CHECK(close(fd) == 0 && unlink(name.s) == 0);
    free(data);
    guest_scratch_end();
    printf("digest %016lx\n", (unsigned long)digest);
    return guest_ok();
}
