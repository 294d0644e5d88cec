// Shows: a memfd that parent and child have in common: blocks go in by pwrite and come out by pread, a byte in a pipe says when.
// Breaks if: a block is written into, or read from, a file that only one of the copies has.
// kit: tree
#include "guest.h"
#include <sys/mman.h>
#include <sys/wait.h>

enum { ROUNDS = 300, BLOCK = 5000, BLOCKS = 8 };

static unsigned char block[BLOCK], wanted[BLOCK];

static void put(int file, long r, uint64_t seed)
{
    guest_fill(block, BLOCK, seed);
    CHECK(pwrite(file, block, BLOCK, r % BLOCKS * BLOCK) == BLOCK);
}

static void check(int file, long r, uint64_t seed)
{
    guest_fill(wanted, BLOCK, seed);
    CHECK(pread(file, block, BLOCK, r % BLOCKS * BLOCK) == BLOCK);
    CHECK(memcmp(block, wanted, BLOCK) == 0);
}

static void child(int file, int in, int out)
{
    for (long r = 0, told; r < ROUNDS; r++) {
        guest_read_all(in, &told, sizeof told);
        CHECK(told == r);
        check(file, r, (uint64_t)r);
        put(file, r, (uint64_t)r + 5000);
        guest_write_all(out, &r, sizeof r);
    }
    _exit(0);
}

int main(void)
{
    int down[2], up[2], status, file = memfd_create("guest", 0);
    long told;

    CHECK(file >= 0 && pipe(down) == 0 && pipe(up) == 0);
    CHECK(ftruncate(file, BLOCK * BLOCKS) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        child(file, down[0], up[1]);
    for (long r = 0; r < ROUNDS; r++) {
        put(file, r, (uint64_t)r);
        guest_write_all(down[1], &r, sizeof r);
        guest_read_all(up[0], &told, sizeof told);
        CHECK(told == r);
        check(file, r, (uint64_t)r + 5000);
        guest_pause_us(1200);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    printf("digest %016llx\n", (unsigned long long)guest_digest(block, BLOCK));
    return guest_ok();
}
