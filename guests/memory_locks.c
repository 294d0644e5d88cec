// Shows: locks of memory that fail: a limit, a hole, addresses without memory; and a mapping that is moved with too long a length.
// Breaks if: a copy is told that it has locked what the primary could not; or an answer is about a place that the runtime chose.
#include "guest.h"
#include <sys/mman.h>
#include <sys/resource.h>

enum { ROUNDS = 30, PAGE = 4096 };

static int is_told;

static void *work(void *arg)
{
    char *at = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    long failed = 0;

    CHECK(at != MAP_FAILED && munmap(at + 5 * PAGE, PAGE) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        /* A privileged process may lock as much as it likes. */
        long result = mlock(at, 4 * PAGE);
        failed += result != 0;
        if (result == 0)
            CHECK(munlock(at, 4 * PAGE) == 0);
        /* The C library's own would move within what it knows. */
        FAILS(mremap(at, 1000 * PAGE, 2000 * PAGE, MREMAP_MAYMOVE), EFAULT);
        if (guest_num(arg) == 0 && !is_told) {
            is_told = 1;
            printf("%s\n", result == 0 ? "locked" : "not locked");
            fflush(stdout);
        }
        guest_pause_us(1500);
    }
    CHECK(munmap(at, 8 * PAGE) == 0);
    return guest_ptr(failed);
}

int main(void)
{
    struct rlimit none = { 0, 0 };

    /* Natively root may lock beyond it: the answers are the same in every run either way. */
    CHECK(setrlimit(RLIMIT_MEMLOCK, &none) == 0);
    pthread_t t[2];
    for (int i = 0; i < 2; i++)
        t[i] = guest_start(work, guest_ptr(i));
    for (int i = 0; i < 2; i++) {
        long failed = guest_num(guest_join(t[i]));
        CHECK(failed == 0 || failed == ROUNDS);
    }
    return guest_ok();
}
