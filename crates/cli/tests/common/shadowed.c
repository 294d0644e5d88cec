/* Writes pages, and what each of them must hold into a second place. A page that is not as it was last written ends it with 1.
 * Each line of its output is the number of pages that it has written so far. It ends with its input. */
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

#define PAGES 2048
#define WORDS 512

static uint64_t shadow[PAGES];

/* What a page holds: nothing that could be compressed. */
static uint64_t held(size_t page, int word)
{
    uint64_t mixed = (shadow[page] + (uint64_t)word) * 0x9e3779b97f4a7c15u;

    return (mixed ^ mixed >> 29) * 0xbf58476d1ce4e5b9u;
}

int main(void)
{
    size_t bytes = (size_t)PAGES * WORDS * sizeof(uint64_t);
    uint64_t (*pages)[WORDS] = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct pollfd end = { .fd = 0, .events = POLLIN };
    uint64_t next = 1;

    if (pages == MAP_FAILED)
        return 2;
    for (uint64_t step = 0; step < PAGES || poll(&end, 1, 4) == 0;) {
        next ^= next << 13, next ^= next >> 7, next ^= next << 17;
        size_t page = step < PAGES ? step : next % PAGES;

        if (page == PAGES / 2 && step >= PAGES)
            continue;
        shadow[page] = ++step << 32;
        for (int word = 0; word < WORDS; word++)
            pages[page][word] = held(page, word);
        if (step >= PAGES && step % 128 == 0) {
            for (page = 0; page < PAGES; page++)
                for (int word = 0; word < WORDS; word++)
                    if (pages[page][word] != held(page, word)) {
                        printf("page %zu is another\n", page);
                        return 1;
                    }
            /* From now on it is three mappings. */
            if (step >= PAGES + 128 && mprotect(pages[PAGES / 2], sizeof pages[0], PROT_READ))
                return 2;
            printf("%llu\n%s", (unsigned long long)step, step == PAGES ? "ready\n" : "");
            fflush(stdout);
        }
    }
    return 0;
}
