// Shows: C11 atomics in shared anonymous memory: children add, publish a block and set its flag; the parent reads at the end, or once told.
// Breaks if: an addition is made by both copies of a process, or by the one that died only.
// kit: tree
// kit: allow unprotected memory that a child shares and that is newer than its parent's standby costs that standby
// kit: no-faults an addition by an atomic alone, behind the last event before a kill, is not known to the standby
#include "guest.h"
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { CHILDREN = 3, ROUNDS = 250, WORDS = 32 };

struct box {
    atomic_long total;
    atomic_ulong bits[CHILDREN];
    _Atomic int published[CHILDREN];
    uint64_t block[CHILDREN][WORDS];
};

static void child(struct box *box, int me, int told)
{
    for (int r = 0; r < ROUNDS; r++) {
        atomic_fetch_add(&box->total, r + me);
        atomic_fetch_xor(&box->bits[me], 1ul << (r % 60));
        if (r == ROUNDS / 2) {
            for (int w = 0; w < WORDS; w++)
                box->block[me][w] = guest_mix((uint64_t)(me * WORDS + w));
            atomic_store_explicit(&box->published[me], 1, memory_order_release);
            guest_write_all(told, &me, sizeof me);
        }
        guest_pause_us(1300);
    }
    _exit(0);
}

int main(void)
{
    int ends[2], who, status;
    long want = 0;
    struct box *box =
        (struct box *)mmap(NULL, sizeof *box, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(box != MAP_FAILED && pipe(ends) == 0);
    for (int c = 0; c < CHILDREN; c++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
            child(box, c, ends[1]);
    }
    for (int c = 0; c < CHILDREN; c++) {
        guest_read_all(ends[0], &who, sizeof who);
        CHECK(who >= 0 && who < CHILDREN);
        CHECK(atomic_load_explicit(&box->published[who], memory_order_acquire) == 1);
        for (int w = 0; w < WORDS; w++)
            CHECK(box->block[who][w] == guest_mix((uint64_t)(who * WORDS + w)));
    }
    for (int c = 0; c < CHILDREN; c++)
        CHECK(waitpid(-1, &status, 0) > 0 && status == 0);
    unsigned long bits = 0;
    for (int r = 0; r < ROUNDS; r++)
        bits ^= 1ul << (r % 60);
    for (int c = 0; c < CHILDREN; c++) {
        CHECK(atomic_load(&box->bits[c]) == bits);
        want += (long)ROUNDS * (ROUNDS - 1) / 2 + (long)c * ROUNDS;
    }
    printf("total %ld\n", atomic_load(&box->total));
    CHECK(atomic_load(&box->total) == want);
    CHECK(munmap(box, sizeof *box) == 0);
    return guest_ok();
}
