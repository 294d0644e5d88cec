// Shows: private memory after a fork: each side keeps its own 4 MiB, with what MADV_DONTFORK and MADV_WIPEONFORK say; shared memory is one.
// Breaks if: a standby of the child has memory of the parent's that the child does not, or has wiped what its primary has.
// kit: tree
// kit: allow unprotected memory that a child shares and that is newer than its parent's standby costs that standby
#include "guest.h"
#include <sys/mman.h>
#include <sys/wait.h>

enum { SIZE = 4 << 20, ROUNDS = 6, STEPS = 12 };

static uint64_t work(unsigned char *mine, unsigned char *wiped, uint64_t seed)
{
    uint64_t digest = 0;

    for (int step = 0; step < STEPS; step++) {
        for (size_t at = 0; at < SIZE; at += 4096)
            mine[at + (size_t)step] = (unsigned char)(mine[at] + step + (int)seed);
        wiped[step] = (unsigned char)(seed + (uint64_t)step);
        digest = guest_mix(digest ^ guest_digest(mine, SIZE / 64) ^ guest_digest(wiped, 64));
        guest_pause_us(1500);
    }
    return digest;
}

int main(void)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS, status, ends[2];
    unsigned char *mine = (unsigned char *)mmap(NULL, SIZE, PROT_READ | PROT_WRITE, flags, -1, 0);
    unsigned char *wiped = (unsigned char *)mmap(NULL, 8192, PROT_READ | PROT_WRITE, flags, -1, 0);
    unsigned char *gone = (unsigned char *)mmap(NULL, 4096, PROT_READ | PROT_WRITE, flags, -1, 0);
    uint64_t digest = 0;

    CHECK(mine != MAP_FAILED && wiped != MAP_FAILED && gone != MAP_FAILED && pipe(ends) == 0);
    CHECK(madvise(wiped, 8192, MADV_WIPEONFORK) == 0 && madvise(gone, 4096, MADV_DONTFORK) == 0);
    guest_fill(mine, SIZE, 1);
    for (int r = 0; r < ROUNDS; r++) {
        uint64_t theirs, before = guest_digest(mine, SIZE);
        wiped[0] = gone[0] = (unsigned char)(r + 1);
        wiped[4096] = 7;
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            unsigned char held;
            CHECK(guest_digest(mine, SIZE) == before && wiped[0] == 0 && wiped[4096] == 0);
            FAILS(mincore(gone, 4096, &held), ENOMEM);
            theirs = work(mine, wiped, 100 + (uint64_t)r);
            guest_write_all(ends[1], &theirs, sizeof theirs);
            _exit(0);
        }
        digest = guest_mix(digest ^ work(mine, wiped, (uint64_t)r));
        CHECK(gone[0] == r + 1 && wiped[4096] == 7);
        guest_read_all(ends[0], &theirs, sizeof theirs);
        digest = guest_mix(digest ^ theirs);
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    }
    printf("digest %016lx\n", (unsigned long)digest);
    return guest_ok();
}
