// Shows: memory that is asked for while the loader still works, by an allocator of the program's own, at an address that it prefers.
// Breaks if: it gets an address that is the runtime's later, and calls on its own memory fail.
#include "guest.h"
#include <sys/mman.h>

enum { PLACES = 64, PAGE = 4096 };

static char *rooms[PLACES];

static int none(void)
{
    return 1;
}

/* The loader asks what to take for early() before anything else of this program runs. */
static int (*choose(void))(void)
{
    const uintptr_t low = 0x200000000000, step = 0x4000000000;

    for (int n = 0; n < PLACES; n++) {
        uintptr_t address = low + step * (uintptr_t)n;
        void *place;
        memcpy(&place, &address, sizeof place);
        rooms[n] = mmap(place, 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    }
    return none;
}

int early(void) __attribute__((ifunc("choose")));

static void *work(void *arg)
{
    for (int n = (int)guest_num(arg); n < PLACES; n += 2) {
        CHECK(rooms[n] != MAP_FAILED);
        CHECK(mprotect(rooms[n], PAGE, PROT_READ | PROT_WRITE) == 0);
        memset(rooms[n], n + 1, PAGE);
        guest_pause_us(200);
        CHECK(rooms[n][PAGE - 1] == n + 1);
        CHECK(madvise(rooms[n], PAGE, MADV_DONTNEED) == 0 && rooms[n][0] == 0);
        CHECK(munmap(rooms[n], 2 * PAGE) == 0);
    }
    return arg;
}

int main(void)
{
    pthread_t t[2];

    RETURNS(early(), 1);
    for (int i = 0; i < 2; i++)
        t[i] = guest_start(work, guest_ptr(i));
    for (int i = 0; i < 2; i++)
        CHECK(guest_num(guest_join(t[i])) == i);
    return guest_ok();
}
