// Shows: one shared memory that is mapped in several places, in parts and with other rights: code is written here and run there.
// Breaks if: a copy has memory of its own for each place, so that what is stored in one of them never comes to the others.
// kit: allow unprotected a writable shared mapping of a file costs the standby
// kit: no-record a replay has memory of its own for each place, so code that is written in one is not in the other
#include "guest.h"
#include <sys/mman.h>

enum { BYTES = 256 << 10, PAGE = 4096, ROUNDS = 60, PLACE = 64 };

static void *map(int fd, int prot, size_t bytes, off_t from)
{
    void *at = mmap(NULL, bytes, prot, MAP_SHARED, fd, from);

    CHECK(at != MAP_FAILED);
    return at;
}

int main(void)
{
    int fd = memfd_create("twice", MFD_CLOEXEC);

    CHECK(fd >= 0 && ftruncate(fd, BYTES) == 0);
    unsigned char *write_here = map(fd, PROT_READ | PROT_WRITE, BYTES, 0);
    unsigned char *run_here = map(fd, PROT_READ | PROT_EXEC, BYTES, 0);
    const volatile unsigned char *end = map(fd, PROT_READ, BYTES / 2, BYTES / 2);

    CHECK(close(fd) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        /* mov eax, 7 * r; ret */
        unsigned char code[6] = { 0xb8, (unsigned char)(7 * r), (unsigned char)(7 * r >> 8), 0, 0, 0xc3 };
        size_t at = (size_t)r * PLACE * 13 % BYTES / PLACE * PLACE;
        int (*function)(void);

        memcpy(write_here + at, code, sizeof code);
        memcpy(&function, &(unsigned char *){ run_here + at }, sizeof function);
        guest_pause_us(1500);
        RETURNS(function(), 7 * r);
        write_here[BYTES - 1 - r] = (unsigned char)(r + 1);
        RETURNS(end[BYTES / 2 - 1 - r], r + 1);
        if (r % 20 == 19) {
            printf("round %d\n", r);
            fflush(stdout);
        }
    }
    return guest_ok();
}
