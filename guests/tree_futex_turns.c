// Shows: processes that wait for each other by futex calls of their own in memory that they share, and go by what the calls answer.
// Breaks if: a standby makes such a call on its own copy of the memory, where nobody waits and nobody wakes it.
// kit: tree
// kit: family the end of one standby is the end of all
// kit: turns a standby without turns makes such calls on memory where nobody waits
// kit: allow unprotected memory that a child shares and that is newer than its parent's standby costs that standby
// kit: allow standby_lost the same
// kit: stale a recorded group has no family: a standby beside a recording sees the memory as it was
// kit: serial its processes do to each other what no lock orders
#include "guest.h"
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { ROUNDS = 60, BYTES = 2 << 20 };

static uint32_t *words;

static long futex(uint32_t *word, int op, uint32_t value, const struct timespec *time)
{
    return syscall(SYS_futex, word, op, value, time, NULL, 0);
}

/* Where nobody waited yet, the other one is given a moment. */
static void wake(uint32_t *word, uint32_t round)
{
    __atomic_store_n(word, round, __ATOMIC_SEQ_CST);
    long woken = futex(word, FUTEX_WAKE, 1, NULL);
    CHECK(woken == 0 || woken == 1);
    if (woken == 0)
        guest_pause_us(300);
}

static void wait_for(uint32_t *word, uint32_t round)
{
    struct timespec time = { 10, 0 };

    while (__atomic_load_n(word, __ATOMIC_SEQ_CST) != round) {
        long result = futex(word, FUTEX_WAIT, round - 1, &time);
        CHECK(result == 0 || errno == EAGAIN || errno == EINTR);
    }
}

int main(void)
{
    words = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(words != MAP_FAILED);
    struct timespec soon = { 0, 1000000 };
    pid_t child = fork();

    CHECK(child >= 0);
    for (uint32_t r = 1; r <= ROUNDS; r++) {
        if (child == 0) {
            wait_for(&words[0], r);
            wake(&words[1], r);
        } else {
            wake(&words[0], r);
            wait_for(&words[1], r);
            /* Nobody wakes this one, and nobody waits there. */
            FAILS(futex(&words[2], FUTEX_WAIT, 1, &soon), EAGAIN);
            RETURNS(futex(&words[2], FUTEX_WAKE, 1, NULL), 0);
            if (r % 10 == 0)
                FAILS(futex(&words[2], FUTEX_WAIT, 0, &soon), ETIMEDOUT);
        }
        guest_pause_us(500);
    }
    if (child == 0)
        _exit(7);
    int status;
    while (waitpid(child, &status, 0) < 0)
        CHECK(errno == EINTR);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    return guest_ok();
}
