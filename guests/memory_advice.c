// Shows: reserved addresses that are committed page by page, MADV_DONTNEED and FREE, mincore, mlock, MAP_FIXED_NOREPLACE, growth by mremap.
// Breaks if: an address is free in one copy and taken in the other, or memory that was given back is not empty in a copy.
#include "guest.h"
#include <sys/mman.h>

enum { ROUNDS = 40, PAGES = 256 };

int main(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), size = PAGES * page;
    uint64_t digest = 0;

    for (int r = 0; r < ROUNDS; r++) {
        unsigned char held[8], *area =
            (unsigned char *)mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        CHECK(area != MAP_FAILED);
        CHECK(mprotect(area + 8 * page, 8 * page, PROT_READ | PROT_WRITE) == 0);
        guest_fill(area + 8 * page, 8 * page, (uint64_t)r);
        digest = guest_mix(digest ^ guest_digest(area + 8 * page, 8 * page));
        CHECK(madvise(area + 8 * page, 4 * page, MADV_DONTNEED) == 0 && area[8 * page] == 0 && area[12 * page - 1] == 0);
        CHECK(madvise(area + 12 * page, page, MADV_FREE) == 0);
        CHECK(mlock(area + 13 * page, page) == 0 && mincore(area + 13 * page, page, held) == 0 && (held[0] & 1));
        CHECK(munlock(area + 13 * page, page) == 0 && madvise(area, size, MADV_NOHUGEPAGE) == 0);
        FAILS(mmap(area, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0), EEXIST);
        CHECK(munmap(area + 100 * page, 10 * page) == 0);
        FAILS(mincore(area + 100 * page, page, held), ENOMEM);
        FAILS(mprotect(area + 95 * page, 10 * page, PROT_READ), ENOMEM);
        CHECK(mmap(area + 100 * page, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) ==
              area + 100 * page);
        CHECK(mmap(area + 15 * page, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == area + 15 * page);
        CHECK(area[15 * page] == 0);

        size_t length = 4 * page;
        unsigned char *grows = (unsigned char *)mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(grows != MAP_FAILED);
        for (int i = 0; i < 6; i++) {
            grows[length - 1] = (unsigned char)(i + r);
            unsigned char *moved = (unsigned char *)mremap(grows, length, length * 2, MREMAP_MAYMOVE);
            CHECK(moved != MAP_FAILED && moved[length - 1] == (unsigned char)(i + r) && moved[length] == 0);
            grows = moved;
            length *= 2;
        }
        unsigned char *onto = (unsigned char *)mremap(grows, page * 4, page * 4, MREMAP_MAYMOVE | MREMAP_FIXED, area + 200 * page);
        CHECK(onto == area + 200 * page && onto[4 * page - 1] == (unsigned char)r);
        CHECK(munmap(grows + page * 4, length - page * 4) == 0 && munmap(area, size) == 0);
        guest_pause_us(1200);
    }
    FAILS(mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), EINVAL);
    FAILS(munmap((void *)1, page), EINVAL);
    printf("digest %016lx\n", (unsigned long)digest);
    return guest_ok();
}
