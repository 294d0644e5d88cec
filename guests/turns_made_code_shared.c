// Shows: a program that writes its code in one mapping of shared memory and runs it in another: its threads take turns.
// Breaks if: only code in private memory counts as the program's own, or what a copy writes in one place is not in the other.
// kit: varies
// kit: allow unprotected a writable shared mapping of a file costs the standby
// kit: stale a race, and beside a recording nobody takes turns
// kit: serial one thread at a time: its threads do to each other what no lock orders
// kit: races its threads do to each other what no door orders
#include "made_code.h"

int main(void)
{
    int fd = memfd_create("code", MFD_CLOEXEC);

    CHECK(fd >= 0 && ftruncate(fd, CODE_BYTES) == 0);
    void *run_here = mmap(NULL, CODE_BYTES, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
    void *write_here = mmap(NULL, CODE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(run_here != MAP_FAILED && write_here != MAP_FAILED && close(fd) == 0);
    memcpy(write_here, ADD, sizeof ADD);
    memcpy(&add, &run_here, sizeof add);
    /* What is raced for before the next standby would be raced for without turns. */
    for (int i = 0; i < 100; i++)
        guest_pause_us(1000);
    run_threads();
    printf("counted %ld\n", counter);
    return guest_ok();
}
