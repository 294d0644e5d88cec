// Shows: mappings with a preferred place that is taken, so that the kernel chooses one, beside memory that is mapped to be shared.
// Breaks if: what a standby keeps out of sight lies where the kernel may put a mapping of its primary's.
// kit: allow unprotected protection ends at the mapping, and comes back
#include "guest.h"
#include <sys/mman.h>

enum { SHARED = 3, BYTES = 16384, ROUNDS = 40 };

int main(void)
{
    char *shared[SHARED + 1];

    for (int i = 0; i < SHARED; i++) {
        shared[i] = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        CHECK(shared[i] != MAP_FAILED);
        memset(shared[i], i + 1, BYTES);
    }
    int fd = memfd_create("preferred", MFD_CLOEXEC);
    CHECK(fd >= 0 && ftruncate(fd, BYTES) == 0);
    shared[SHARED] = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(shared[SHARED] != MAP_FAILED);
    memset(shared[SHARED], SHARED + 1, BYTES);
    void *taken = (void *)((uintptr_t)&main & ~(uintptr_t)4095);
    for (int round = 0; round < ROUNDS; round++) {
        unsigned char *own = mmap(taken, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        CHECK(own != MAP_FAILED && own != taken);
        own[0] = (unsigned char)round;
        usleep(4000);
        CHECK(own[0] == round && own[BYTES - 1] == 0);
        for (int i = 0; i <= SHARED; i++)
            CHECK(shared[i][0] == i + 1 && shared[i][BYTES - 1] == i + 1);
        /* Every other one stays. */
        if (round % 2)
            RETURNS(munmap(own, BYTES), 0);
    }
    return guest_ok();
}
