// Shows: a spin lock made of xchg and given back by a plain store, and one that is only tried: a standby's threads get it in the order
// of their primary's, and those that did not get it do not get it.
// Breaks if: a standby takes a lock that is still held there, or gives one to a thread that its primary turned away.
// kit: varies
// kit: stale a race, and beside a recording nobody orders atomic instructions
// kit: serial one thread at a time: its threads are ordered by nothing that a recording has
// kit: schedule its threads are ordered by atomic instructions of their own
#include "guest.h"

enum { THREADS = 3, ROUNDS = 300 };

static int lock, try_lock;
static long order, refused;

static void take(int *word)
{
    while (__atomic_exchange_n(word, 1, __ATOMIC_ACQUIRE) != 0)
        while (__atomic_load_n(word, __ATOMIC_RELAXED) != 0)
            __builtin_ia32_pause();
}

static void *run(void *arg)
{
    char line[64];
    int sink = open("/dev/null", O_WRONLY);

    CHECK(sink >= 0);
    for (int r = 0; r < ROUNDS; r++) {
        take(&lock);
        order = order * 31 + guest_num(arg) + 1;
        long now = order;
        __atomic_store_n(&lock, 0, __ATOMIC_RELEASE);
        int free_word = 0;
        int got = __atomic_compare_exchange_n(&try_lock, &free_word, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
        if (got) {
            for (volatile int n = 0; n < 50; n++)
                ;
            __atomic_store_n(&try_lock, 0, __ATOMIC_RELEASE);
        } else {
            CHECK(free_word == 1);
            __atomic_add_fetch(&refused, 1, __ATOMIC_RELAXED);
        }
        int len = snprintf(line, sizeof line, "%ld %d\n", now, got);
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
    printf("order %ld refused %ld\n", order, refused);
    return guest_ok();
}
