// Shows: stores through a shared mapping of a memfd are what pread finds; seals hold for the mapping too.
// Breaks if: a standby maps the primary's memory, or stands in for it and hides what others store there.
// kit: allow unprotected a writable shared mapping of a file ends protection
// kit: no-kill without a standby nobody takes over
#include "guest.h"
#include <sys/mman.h>

enum { ROUNDS = 60 };

int main(void)
{
    long rounds = 0;

    guest_pause_us(20000);

    for (int r = 0; r < ROUNDS; r++) {
        char back[64];
        int memory = memfd_create("guest", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        CHECK(memory >= 0 && ftruncate(memory, 4096) == 0);
        char *m = (char *)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
        CHECK(m != MAP_FAILED);
        snprintf(m, 4096, "round %d", r);
        CHECK(pread(memory, back, sizeof back, 0) == sizeof back && strcmp(back, m) == 0);
        CHECK(fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
        FAILS(ftruncate(memory, 8192), EPERM);
        FAILS(fcntl(memory, F_ADD_SEALS, F_SEAL_WRITE), EBUSY);
        CHECK(munmap(m, 4096) == 0 && close(memory) == 0);
        rounds++;
        guest_pause_us(300);
    }
    printf("rounds %ld\n", rounds);
    return guest_ok();
}
