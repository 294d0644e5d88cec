// Shows: a lock with tickets, drawn by lock xadd and called by a plain store, with a loop that waits for one's own number.
// Breaks if: threads of a standby draw other numbers than their primary's, or one waits there for ever.
// kit: varies
// kit: stale a race, and beside a recording nobody orders atomic instructions
// kit: serial one thread at a time: its threads are ordered by nothing that a recording has
// kit: schedule its threads are ordered by atomic instructions of their own
#include "guest.h"

enum { THREADS = 3, ROUNDS = 250 };

static unsigned short drawn, called;
static long order;

static void *run(void *arg)
{
    char line[64];
    int sink = open("/dev/null", O_WRONLY);

    CHECK(sink >= 0);
    for (int r = 0; r < ROUNDS; r++) {
        unsigned short mine = __atomic_fetch_add(&drawn, 1, __ATOMIC_RELAXED);

        while (__atomic_load_n(&called, __ATOMIC_ACQUIRE) != mine)
            __builtin_ia32_pause();
        order = order * 31 + guest_num(arg) + 1;
        long now = order;
        __atomic_store_n(&called, (unsigned short)(mine + 1), __ATOMIC_RELEASE);
        int len = snprintf(line, sizeof line, "%ld %hu\n", now, mine);
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
    CHECK(drawn == THREADS * ROUNDS && called == drawn);
    printf("order %ld\n", order);
    return guest_ok();
}
