// Shows: a mutex of the program's own, of cmpxchg, xchg and futex calls, in parallel: its owners follow each other in a standby as in
// its primary.
// Breaks if: who gets the mutex, or who has to sleep for it, is another one in the standby.
// kit: varies
// kit: stale a race, and beside a recording nobody orders atomic instructions
// kit: serial one thread at a time: its threads are ordered by nothing that a recording has
// kit: schedule its threads are ordered by atomic instructions of their own
#include "guest.h"
#include <linux/futex.h>
#include <sys/syscall.h>

enum { THREADS = 4, ROUNDS = 200 };

static int word;
static long order;

static void own_lock(void)
{
    int seen = 0;

    if (__atomic_compare_exchange_n(&word, &seen, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        return;
    if (seen != 2)
        seen = __atomic_exchange_n(&word, 2, __ATOMIC_ACQUIRE);
    while (seen != 0) {
        syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
        seen = __atomic_exchange_n(&word, 2, __ATOMIC_ACQUIRE);
    }
}

static void own_unlock(void)
{
    if (__atomic_fetch_sub(&word, 1, __ATOMIC_RELEASE) != 1) {
        __atomic_exchange_n(&word, 0, __ATOMIC_RELEASE);
        syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    }
}

static void *run(void *arg)
{
    char line[64];
    int sink = open("/dev/null", O_WRONLY);

    CHECK(sink >= 0);
    for (int r = 0; r < ROUNDS; r++) {
        own_lock();
        order = order * 31 + guest_num(arg) + 1;
        if (r % 16 == 0)
            guest_pause_us(60);
        long now = order;
        own_unlock();
        int len = snprintf(line, sizeof line, "%ld\n", now);
        RETURNS(write(sink, line, (size_t)len), len);
    }
    ZERO(close(sink));
    return NULL;
}

int main(void)
{
    guest_run(run, THREADS);
    printf("order %ld\n", order);
    return guest_ok();
}
