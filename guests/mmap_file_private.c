// Shows: a private mapping of a file: own writes stay in it; pages never touched show what the file says when they are read.
// Breaks if: the standby reads such a page later than the primary did and finds bytes of the primary's future.
#include "guest.h"
#include <sys/mman.h>

enum { PAGES = 16, PAGE = 4096, ROUNDS = 60 };

int main(void)
{
    uint64_t digest = 0;

    guest_scratch();
    struct guest_name name = guest_path("mapped");
    int fd = open(name.s, O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0 && ftruncate(fd, PAGES * PAGE) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        unsigned char block[PAGE];
        for (int p = 0; p < PAGES; p++) {
            memset(block, r + p, PAGE);
            CHECK(pwrite(fd, block, PAGE, p * PAGE) == PAGE);
        }
        unsigned char *m = (unsigned char *)mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
        CHECK(m != MAP_FAILED);
        m[0] = 0xaa; /* from here the first page is ours */
        unsigned char sum = 0;
        for (int p = 1; p < PAGES; p++)
            sum = (unsigned char)(sum + m[p * PAGE + 17]);
        guest_pause_us(200);
        /* The file moves on after the pages were read: a copy that reads them only now would differ. */
        memset(block, 0x55, PAGE);
        for (int p = 0; p < PAGES; p++)
            CHECK(pwrite(fd, block, PAGE, p * PAGE) == PAGE);
        CHECK(m[0] == 0xaa && m[1] == (unsigned char)r);
        unsigned char want = 0;
        for (int p = 1; p < PAGES; p++)
            want = (unsigned char)(want + r + p);
        CHECK(sum == want);
        CHECK(pread(fd, block, 1, 0) == 1 && block[0] == 0x55);
        digest = guest_mix(digest ^ sum);
        CHECK(munmap(m, PAGES * PAGE) == 0);
        guest_pause_us(200);
    }
    CHECK(close(fd) == 0 && unlink(name.s) == 0);
    guest_scratch_end();
    printf("digest %016lx\n", (unsigned long)digest);
    return guest_ok();
}
