// Shows: anonymous mmap, mremap (in place and moving), mprotect, madvise DONTNEED, partial munmap, MAP_FIXED, from threads.
// Breaks if: results differ between copies: an address kept in memory then points elsewhere in the standby.
#include "guest.h"
#include <sys/mman.h>

enum { THREADS = 3, ROUNDS = 50, PAGE = 4096 };

static unsigned char *map(size_t pages)
{
    void *m = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(m != MAP_FAILED);
    return (unsigned char *)m;
}

static void *run(void *arg)
{
    uint64_t digest = (uint64_t)guest_num(arg);

    for (int r = 0; r < ROUNDS; r++) {
        unsigned char *m = map(8);
        guest_fill(m, 8 * PAGE, digest);
        /* The address itself is kept in the mapping: it must stay true. */
        memcpy(m, &m, sizeof m);
        CHECK(mprotect(m + PAGE, PAGE, PROT_READ) == 0);
        CHECK(mprotect(m + PAGE, PAGE, PROT_READ | PROT_WRITE) == 0);
        unsigned char *moved = (unsigned char *)mremap(m, 8 * PAGE, 64 * PAGE, MREMAP_MAYMOVE), *inside;
        CHECK(moved != MAP_FAILED);
        memcpy(&inside, moved, sizeof inside);
        CHECK(inside == m);
        for (int i = 8 * PAGE; i < 64 * PAGE; i += 512)
            CHECK(moved[i] == 0);
        digest = guest_mix(digest ^ guest_digest(moved + 64, 8 * PAGE - 64));
        CHECK(madvise(moved + PAGE, PAGE, MADV_DONTNEED) == 0 && moved[PAGE + 100] == 0);
        CHECK(munmap(moved + 2 * PAGE, 4 * PAGE) == 0);
        void *fixed = mmap(moved + 2 * PAGE, 4 * PAGE, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        CHECK(fixed == moved + 2 * PAGE || (fixed == MAP_FAILED && errno == EEXIST));
        if (fixed == MAP_FAILED) /* another thread's mapping took the hole: legal */
            CHECK(munmap(moved, 2 * PAGE) == 0 && munmap(moved + 6 * PAGE, 58 * PAGE) == 0);
        else
            CHECK(munmap(moved, 64 * PAGE) == 0);
        guest_pause_us(300);
    }
    return guest_ptr((long)(digest >> 8));
}

int main(void)
{
    pthread_t t[THREADS];

    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, guest_ptr(i));
    for (int i = 0; i < THREADS; i++)
        printf("thread %d: %014lx\n", i, guest_num(guest_join(t[i])));
    return guest_ok();
}
