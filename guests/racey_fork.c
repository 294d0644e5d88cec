// Shows: processes that race in memory which they share, a sharing group takes turns as one.
// Breaks if: a process of the group runs while another one has the turn. Whose turn is next is not computed: outcomes are many.
// kit: varies
// kit: no-protect it ends before memory that is newer than its first standby has one: tests/order runs it
// kit: no-kill nobody of it is protected before it ends
// kit: no-record some replays of processes that race in shared memory go another way: 2 of 8
// kit: no-faults nobody of it is protected before it ends
#include "racey.h"
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { PROCESSES = 3, ROUNDS = 3000, STEPS = 500 };

static void race(volatile unsigned *words, unsigned last)
{
    for (int round = 0; round < ROUNDS; round++) {
        for (int step = 0; step < STEPS; step++)
            last = racey_step(words, last);
        sched_yield();
    }
}

int main(void)
{
    pid_t children[PROCESSES];
    volatile unsigned *words =
        mmap(NULL, 1 << 21, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(words != MAP_FAILED);
    racey_begin(words);
    for (unsigned p = 0; p < PROCESSES; p++) {
        children[p] = fork();
        CHECK(children[p] >= 0);
        if (children[p] == 0) {
            race(words, p + 1);
            _exit(0);
        }
    }
    for (unsigned p = 0; p < PROCESSES; p++) {
        int status;
        CHECK(waitpid(children[p], &status, 0) == children[p] && status == 0);
    }
    printf("signature %08x\n", racey_signature(words));
    return guest_ok();
}
