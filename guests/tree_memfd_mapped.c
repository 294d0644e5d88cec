// Shows: a memfd mapped by parent and child: each stores into its half and reads the other's, in turns that a pipe hands over.
// Breaks if: a store of one process does not reach the other, or a mapping is made of another file after a failover.
// kit: tree
// kit: allow unprotected a writable shared mapping of a file ends protection
// kit: allow standby_lost a writable shared mapping of a file ends protection
// kit: serial one thread at a time: its threads, or processes, do to each other what no lock orders
#include "guest.h"
#include <sys/mman.h>
#include <sys/wait.h>

enum { ROUNDS = 250, HALF = 4096 };

static void check(const unsigned char *half, long r)
{
    static unsigned char wanted[HALF];

    guest_fill(wanted, HALF, (uint64_t)r);
    CHECK(memcmp(half, wanted, HALF) == 0);
}

static void child(unsigned char *memory, int in, int out)
{
    for (long r = 0, told; r < ROUNDS; r++) {
        guest_read_all(in, &told, sizeof told);
        check(memory, r);
        guest_fill(memory + HALF, HALF, (uint64_t)r * 3);
        guest_write_all(out, &r, sizeof r);
    }
    _exit(0);
}

int main(void)
{
    int down[2], up[2], status, file = memfd_create("guest", 0);
    long told;

    CHECK(file >= 0 && ftruncate(file, 2 * HALF) == 0 && pipe(down) == 0 && pipe(up) == 0);
    unsigned char *memory = (unsigned char *)mmap(NULL, 2 * HALF, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(memory != MAP_FAILED);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        child(memory, down[0], up[1]);
    for (long r = 0; r < ROUNDS; r++) {
        guest_fill(memory, HALF, (uint64_t)r);
        guest_write_all(down[1], &r, sizeof r);
        guest_read_all(up[0], &told, sizeof told);
        CHECK(told == r);
        check(memory + HALF, r * 3);
        guest_pause_us(1200);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    printf("digest %016llx\n", (unsigned long long)guest_digest(memory, 2 * HALF));
    CHECK(munmap(memory, 2 * HALF) == 0);
    return guest_ok();
}
