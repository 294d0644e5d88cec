// Shows: locks on futex words of the program's own, spinning for a moment before they sleep, and libc's locks below stdio and
// malloc: with turns the copies follow each other.
// Breaks if: a futex call of the program's is answered by each copy's own kernel, or one of libc's is looked for in the log.
// kit: varies
// kit: stale a race, and beside a recording nobody takes turns
// kit: turns its threads do to each other what no lock orders
// kit: serial one thread at a time: its threads do to each other what no lock orders
#include "guest.h"
#include <linux/futex.h>
#include <sys/syscall.h>

enum { THREADS = 4, ROUNDS = 300 };

static int word;
static long order;

static void own_lock(void)
{
    int seen = 0;

    for (int spin = 0; spin < 50; spin++) {
        seen = 0;
        if (__atomic_compare_exchange_n(&word, &seen, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return;
    }
    while (__atomic_exchange_n(&word, 2, __ATOMIC_ACQUIRE) != 0)
        syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
}

static void own_unlock(void)
{
    if (__atomic_exchange_n(&word, 0, __ATOMIC_RELEASE) == 2)
        syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void *run(void *arg)
{
    FILE *sink = fopen("/dev/null", "w");

    CHECK(sink != NULL);
    for (int r = 0; r < ROUNDS; r++) {
        own_lock();
        order = order * 31 + guest_num(arg) + 1;
        if (r % 16 == 0)
            guest_pause_us(60);
        long now = order;
        own_unlock();
        void *block = malloc((size_t)(now & 0xffff) + 1);
        CHECK(block != NULL);
        CHECK(fprintf(sink, "%ld %d\n", now, r) > 0);
        if (r % 8 == 0)
            CHECK(fflush(sink) == 0);
        free(block);
    }
    CHECK(fclose(sink) == 0);
    return NULL;
}

int main(void)
{
    guest_run(run, THREADS);
    printf("order %ld\n", order);
    return guest_ok();
}
