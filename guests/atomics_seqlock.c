// Shows: readers of a sequence lock, whose plain loads no copy can order: what they see in a standby may be another state. Then that
// standby has gone another way, and the program goes on with a new one.
// Breaks if: such a program is held up, or is told something that was never there.
// kit: varies
// kit: stale a race, and beside a recording nobody orders atomic instructions
// kit: serial one thread at a time: its threads are ordered by nothing that a recording has
// kit: schedule its threads are ordered by atomic instructions of their own
// kit: no-kill a standby that has gone another way, or spins, cannot take over
// kit: allow diverged plain loads are in no order
// kit: allow unprotected plain loads are in no order
#include "guest.h"

enum { READERS = 2, ROUNDS = 200 };

static unsigned int sequence;
static unsigned long first, second;
static int stop;

static void *write_all(void *arg)
{
    (void)arg;
    for (unsigned long n = 1; !__atomic_load_n(&stop, __ATOMIC_ACQUIRE); n++) {
        unsigned int seen = __atomic_load_n(&sequence, __ATOMIC_RELAXED);

        CHECK(__atomic_compare_exchange_n(&sequence, &seen, seen + 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
        __atomic_store_n(&first, n, __ATOMIC_RELAXED);
        __atomic_store_n(&second, n * 3, __ATOMIC_RELAXED);
        __atomic_add_fetch(&sequence, 1, __ATOMIC_SEQ_CST);
        if (n % 64 == 0)
            guest_pause_us(200);
    }
    return NULL;
}

static void *read_all(void *arg)
{
    char line[64];
    int sink = open("/dev/null", O_WRONLY);

    CHECK(sink >= 0);
    for (int r = 0; r < ROUNDS; r++) {
        unsigned long a, b;
        unsigned int before;

        do {
            before = __atomic_load_n(&sequence, __ATOMIC_ACQUIRE);
            a = __atomic_load_n(&first, __ATOMIC_ACQUIRE);
            b = __atomic_load_n(&second, __ATOMIC_ACQUIRE);
        } while (before % 2 != 0 || __atomic_load_n(&sequence, __ATOMIC_ACQUIRE) != before);
        CHECK(a * 3 == b);
        int len = snprintf(line, sizeof line, "%ld %lu\n", guest_num(arg), a);
        RETURNS(write(sink, line, (size_t)len), len);
        guest_pause_us(300);
    }
    ZERO(close(sink));
    return NULL;
}

int main(void)
{
    pthread_t writer = guest_start(write_all, NULL), readers[READERS];

    for (int t = 0; t < READERS; t++)
        readers[t] = guest_start(read_all, guest_ptr(t));
    for (int t = 0; t < READERS; t++)
        guest_join(readers[t]);
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    guest_join(writer);
    return guest_ok();
}
