// Shows: much shared memory of which little is touched: a page that the program leaves alone stays none.
// Breaks if: a clone or a promotion looks at every page; the program stands still meanwhile, and each look makes a page.
// kit: allow unprotected a writable shared mapping of a file costs the standby
#include "guest.h"
#include <sys/mman.h>

enum { BYTES = 192 << 20, PAGE = 4096, ROUNDS = 40, STEP = 1021 };

static unsigned char *map(int flags, int fd)
{
    void *at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | flags, fd, 0);

    CHECK(at != MAP_FAILED);
    return at;
}

/* Pages that there are. */
static int count(unsigned char *at)
{
    static unsigned char core[BYTES / PAGE];
    int there = 0;

    CHECK(mincore(at, BYTES, core) == 0);
    for (int i = 0; i < BYTES / PAGE; i++)
        there += core[i] & 1;
    return there;
}

int main(void)
{
    int fd = memfd_create("sparse", MFD_CLOEXEC);

    CHECK(fd >= 0 && ftruncate(fd, BYTES) == 0);
    unsigned char *memories[2] = { map(MAP_ANONYMOUS, -1), map(0, fd) };
    for (int r = 0; r < ROUNDS; r++) {
        for (int m = 0; m < 2; m++) {
            memories[m][(size_t)r * STEP * PAGE + (size_t)r] = (unsigned char)(r + m + 1);
            for (int past = 0; past <= r; past++)
                RETURNS(memories[m][(size_t)past * STEP * PAGE + (size_t)past], past + m + 1);
        }
        guest_pause_us(2000);
    }
    for (int m = 0; m < 2; m++) {
        RETURNS(count(memories[m]), ROUNDS);
        CHECK(munmap(memories[m], BYTES) == 0);
    }
    return guest_ok();
}
