// Shows: mappings with a page protected in the middle, and joined again, are moved, grown and shrunk by mremap as one.
// Breaks if: a copy made in between has several for ever: mremap fails with EFAULT after a failover, or in the standby.
#include "guest.h"
#include <sys/mman.h>

enum { ROUNDS = 40, PAGE = 4096, PAGES = 8, KINDS = 7 };

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

static unsigned char *map(size_t pages, int protection)
{
    void *m = mmap(NULL, pages * PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(m != MAP_FAILED);
    return (unsigned char *)m;
}

/* The program's mapping of PAGES pages, filled, with two protected differently from their neighbours. */
static unsigned char *split(uint64_t seed, size_t room)
{
    unsigned char *m = map(PAGES + room, PROT_READ | PROT_WRITE);

    guest_fill(m, PAGES * PAGE, seed);
    CHECK(mprotect(m + PAGE, PAGE, PROT_READ) == 0 && mprotect(m + 5 * PAGE, PAGE, PROT_NONE) == 0);
    return m;
}

static void join(unsigned char *m)
{
    CHECK(mprotect(m + PAGE, PAGE, PROT_READ | PROT_WRITE) == 0);
    CHECK(mprotect(m + 5 * PAGE, PAGE, PROT_READ | PROT_WRITE) == 0);
}

static unsigned char *moved(unsigned char *m, size_t old, size_t new, int flags, void *to)
{
    void *there = mremap(m, old * PAGE, new * PAGE, flags, to);

    if (there == MAP_FAILED)
        printf("mremap %zu to %zu pages, flags %d: %s\n", old, new, flags, strerror(errno));
    CHECK(there != MAP_FAILED);
    return (unsigned char *)there;
}

static uint64_t done(unsigned char *m, size_t pages, size_t filled)
{
    uint64_t digest = guest_digest(m, filled * PAGE);

    for (size_t i = filled * PAGE; i < pages * PAGE; i += 512)
        CHECK(m[i] == 0);
    m[pages * PAGE - 1] = 1;
    CHECK(munmap(m, pages * PAGE) == 0);
    return digest;
}

int main(void)
{
    uint64_t digest = 0;

    for (int r = 0; r < ROUNDS; r++) {
        unsigned char *m[KINDS], *to[KINDS];

        for (int i = 0; i < KINDS; i++) {
            m[i] = split(digest + (uint64_t)i, i == 3 ? PAGES : 0);
            to[i] = map(2 * PAGES, PROT_NONE);
        }
        /* Most copies are made here. */
        guest_pause_us(2000);
        /* What is no single mapping natively either is refused, and stays where it was. */
        CHECK(mremap(m[5], PAGES * PAGE, 2 * PAGES * PAGE, MREMAP_MAYMOVE) == MAP_FAILED && errno == EFAULT);
        for (int i = 0; i < KINDS; i++)
            join(m[i]);
        digest = guest_mix(digest ^ done(moved(m[0], PAGES, 2 * PAGES, MREMAP_MAYMOVE, NULL), 2 * PAGES, PAGES));
        digest = guest_mix(digest ^ done(moved(m[1], PAGES, PAGES, MREMAP_MAYMOVE | MREMAP_FIXED, to[1]), PAGES, PAGES));
        digest = guest_mix(digest ^ done(moved(m[2], PAGES, 7, MREMAP_MAYMOVE | MREMAP_FIXED, to[2]), 7, 7));
        CHECK(munmap(m[3] + PAGES * PAGE, PAGES * PAGE) == 0);
        digest = guest_mix(digest ^ done(moved(m[3], PAGES, 2 * PAGES, 0, NULL), 2 * PAGES, PAGES));
        digest = guest_mix(digest ^ done(moved(m[4], PAGES, PAGES, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL), PAGES, PAGES));
        CHECK(m[4][0] == 0 && m[4][5 * PAGE] == 0);
        CHECK(munmap(m[4], PAGES * PAGE) == 0);
        CHECK(munmap(m[6], PAGE) == 0);
        CHECK(mremap(m[6], PAGES * PAGE, 2 * PAGES * PAGE, MREMAP_MAYMOVE) == MAP_FAILED && errno == EFAULT);
        digest = guest_mix(digest ^ done(m[6] + PAGE, PAGES - 1, PAGES - 1));
        /* The middle of it only, to a place where something lies. */
        unsigned char *part = moved(m[5] + PAGE, 6, 6, MREMAP_MAYMOVE | MREMAP_FIXED, to[5]);
        digest = guest_mix(digest ^ done(part, 6, 6));
        CHECK(munmap(m[5], PAGES * PAGE) == 0);
        for (int i = 0; i < KINDS; i++)
            CHECK(munmap(to[i], 2 * PAGES * PAGE) == 0);
    }
    printf("%016lx\n", digest);
    return guest_ok();
}
