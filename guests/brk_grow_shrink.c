// Shows: sbrk grows and shrinks the data segment; the memory is zero when it comes and kept while it stays.
// Breaks if: the break differs between copies, or only one of them moves it.
#include "guest.h"

enum { ROUNDS = 80, STEP = 256 * 1024 };

int main(void)
{
    uint64_t digest = 0;

    for (int r = 0; r < ROUNDS; r++) {
        /* No allocation between the two sbrk calls: malloc uses the same break. */
        unsigned char *base = (unsigned char *)sbrk(STEP);
        CHECK(base != (void *)-1);
        CHECK((unsigned char *)sbrk(0) == base + STEP);
        for (int i = 4096; i < STEP; i += 4096)
            CHECK(base[i] == 0);
        guest_fill(base, STEP, (uint64_t)r);
        guest_pause_us(300);
        digest = guest_mix(digest ^ guest_digest(base, STEP / 8));
        CHECK((unsigned char *)sbrk(-STEP) == base + STEP);
    }
    printf("digest %016lx\n", (unsigned long)digest);
    return guest_ok();
}
