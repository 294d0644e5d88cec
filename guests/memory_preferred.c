// Shows: an allocator that draws addresses at random and asks for memory there if it is free: what it gets is its own, whole and for ever.
// Breaks if: it gets a hole between what is the runtime's, where calls fail and where a new thread's stack or ring comes on top of it.
#include "guest.h"
#include <sys/mman.h>

enum { PLACES = 256, THREADS = 24, PAGE = 4096, PAGES = 4 };

/* 46 bits, as JavaScript engines take them; natively nothing of the program's lies in between. */
static const uintptr_t low = 0x200000000000, step = 0x1000000000;
static const uintptr_t stacks = 0x2b0000000000, stride = 0x40000000;

static char *rooms[PLACES + THREADS];

static void *at(uintptr_t address)
{
    void *place;
    memcpy(&place, &address, sizeof place);
    return place;
}

static void prefer(int n, uintptr_t where)
{
    char *room = mmap(at(where), PAGES * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    CHECK(room != MAP_FAILED);
    CHECK(mprotect(room, PAGES * PAGE, PROT_READ | PROT_WRITE) == 0);
    memset(room, n % 251 + 1, PAGES * PAGE);
    /* What is not aligned as it should be is given back, at both ends. */
    CHECK(munmap(room, PAGE) == 0);
    CHECK(madvise(room + (PAGES - 1) * PAGE, PAGE, MADV_DONTNEED) == 0 && room[(PAGES - 1) * PAGE] == 0);
    CHECK(munmap(room + (PAGES - 1) * PAGE, PAGE) == 0);
    rooms[n] = room + PAGE;
}

static void *nothing(void *arg)
{
    char text[PAGE];

    memset(text, 0xff, sizeof text);
    guest_pause_us(300);
    return text[guest_num(arg)] == (char)0xff ? arg : NULL;
}

int main(void)
{
    pthread_t t[THREADS];
    char *taken;

    for (int n = 0; n < PLACES; n++)
        prefer(n, low + step * (uintptr_t)n);
    for (int n = 0; n < THREADS; n++)
        prefer(PLACES + n, stacks + stride * (uintptr_t)n + stride - PAGES * PAGE);
    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(nothing, guest_ptr(i + 1));
    for (int i = 0; i < THREADS; i++)
        CHECK(guest_num(guest_join(t[i])) == i + 1);
    for (int n = 0; n < PLACES + THREADS; n++) {
        for (int b = 0; b < (PAGES - 2) * PAGE; b++)
            CHECK(rooms[n][b] == (char)(n % 251 + 1));
        CHECK(mprotect(rooms[n], PAGE, PROT_READ) == 0);
        CHECK(munmap(rooms[n], (PAGES - 2) * PAGE) == 0);
    }
    /* This address or none: it is this one, or taken. */
    for (int n = 0; n < PLACES; n++) {
        taken = mmap(at(low + step * (uintptr_t)n), PAGE, PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (taken == MAP_FAILED) {
            CHECK(errno == EEXIST);
            continue;
        }
        CHECK(taken == at(low + step * (uintptr_t)n));
        *taken = 1;
        CHECK(mprotect(taken, PAGE, PROT_NONE) == 0 && munmap(taken, PAGE) == 0);
    }
    return guest_ok();
}
