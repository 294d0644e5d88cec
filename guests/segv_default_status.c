// Shows: a fault without a handler ends the program by SIGSEGV; a deterministic bug does not go away in a copy.
// Breaks if: each copy is promoted, faults and is promoted again without end, or the final status is another.
// kit: signal 11
// kit: allow promoted the fault is a real death; the standby meets the same bug and dies too
// kit: allow standby_lost the copy repeats the fault
// kit: allow unprotected the copy repeats the fault
// kit: no-kill the guest dies by itself, and a kill could not be told from that
#include "guest.h"
#include <sys/mman.h>
#include <sys/resource.h>

int main(void)
{
    const struct rlimit no_core = { 0, 0 };
    char *forbidden = (char *)mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(setrlimit(RLIMIT_CORE, &no_core) == 0 && forbidden != MAP_FAILED);
    for (int i = 0; i < 60; i++)
        guest_pause_us(400);
    guest_ok();
    *(volatile char *)forbidden = 1;
    return 1;
}
