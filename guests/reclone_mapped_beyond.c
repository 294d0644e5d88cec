// Shows: a file of some pages is mapped with room for three gigabytes, as databases do, grows, and is read through the mapping; each
// standby is made in a moment.
// Breaks if: what is behind the end of a file counts as bytes to copy, or is tried page by page while the program stands still.
// kit: allow unprotected a mapping of a file that changes costs protection, which comes back
#include "guest.h"
#include <sys/mman.h>

enum { PAGES = 150, PAGE = 4096, WORDS = PAGE / 8 };

int main(void)
{
    const size_t room = (size_t)3 << 30;
    uint64_t page[WORDS], sum = 0;

    guest_scratch();
    struct guest_name name = guest_path("database");
    int fd = open(name.s, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && ftruncate(fd, PAGE) == 0);
    int to_read = open(name.s, O_RDONLY | O_CLOEXEC);
    CHECK(to_read >= 0);
    const uint64_t *map = (const uint64_t *)mmap(NULL, room, PROT_READ, MAP_SHARED, to_read, 0);
    CHECK(map != MAP_FAILED);
    for (int n = 0; n < PAGES; n++) {
        for (int i = 0; i < WORDS; i++)
            page[i] = guest_mix((uint64_t)n * WORDS + (uint64_t)i);
        CHECK(pwrite(fd, page, PAGE, (off_t)n * PAGE) == PAGE);
        for (int k = 0; k <= n; k++)
            CHECK(map[k * WORDS + n] == guest_mix((uint64_t)k * WORDS + (uint64_t)n));
        sum += map[(n / 2) * WORDS];
        guest_pause_us(4000);
    }
    printf("sum %016lx\n", (unsigned long)sum);
    CHECK(munmap((void *)(uintptr_t)map, room) == 0);
    CHECK(close(fd) == 0 && close(to_read) == 0 && unlink(name.s) == 0);
    guest_scratch_end();
    return guest_ok();
}
