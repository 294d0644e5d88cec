// Shows: threads that count with lock xadd and lock inc and no lock: each number is drawn once, and a standby draws the same ones.
// Breaks if: an atomic instruction of the program's own is not ordered between the copies, or is made twice, or not at all.
// kit: varies
// kit: stale a race, and beside a recording nobody orders atomic instructions
// kit: serial one thread at a time: its threads are ordered by nothing that a recording has
// kit: schedule its threads are ordered by atomic instructions of their own
#include "guest.h"

enum { THREADS = 4, ROUNDS = 400, EACH = 16 };

static unsigned long next_number;
static unsigned int done;
static unsigned char drawn[THREADS * ROUNDS * EACH];

static void *run(void *arg)
{
    char line[64];
    int sink = open("/dev/null", O_WRONLY);

    CHECK(sink >= 0);
    for (int r = 0; r < ROUNDS; r++) {
        unsigned long mine = 0;

        for (int k = 0; k < EACH; k++) {
            mine = __atomic_fetch_add(&next_number, 1, __ATOMIC_SEQ_CST);
            CHECK(mine < sizeof drawn);
            CHECK(__atomic_exchange_n(&drawn[mine], 1, __ATOMIC_SEQ_CST) == 0);
        }
        __atomic_add_fetch(&done, 1, __ATOMIC_SEQ_CST);
        int len = snprintf(line, sizeof line, "%ld %lu\n", guest_num(arg), mine);
        RETURNS(write(sink, line, (size_t)len), len);
        if (r % 4 == 0)
            guest_pause_us(500);
    }
    ZERO(close(sink));
    return NULL;
}

int main(void)
{
    guest_run(run, THREADS);
    CHECK(next_number == sizeof drawn && done == THREADS * ROUNDS);
    for (size_t n = 0; n < sizeof drawn; n++)
        CHECK(drawn[n] == 1);
    return guest_ok();
}
