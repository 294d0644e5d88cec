// Shows: a program whose locks are its own, atomics and futex calls, and whose threads race for them from their first moment on.
// Breaks if: its threads take turns only once some of them have waited: a kill before that meets a copy that has gone another way.
// kit: varies
// kit: stale a race, and beside a recording nobody takes turns
// kit: serial one thread at a time: its threads do to each other what no lock orders
// kit: races its threads do to each other what no door orders
#include "guest.h"

#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/syscall.h>

enum { THREADS = 4, ROUNDS = 60 };

/* 0 free, 1 held, 2 held and waited for. */
static atomic_int lock;
static long counter;
static int ends[2];

static void wait_for(atomic_int *word, int value, const struct timespec *limit)
{
    long result = syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, limit, NULL, 0);
    CHECK(result == 0 || errno == EAGAIN || errno == EINTR || errno == ETIMEDOUT);
}

static void take(void)
{
    int free = 0;

    if (atomic_compare_exchange_strong(&lock, &free, 1))
        return;
    while (atomic_exchange(&lock, 2) != 0)
        wait_for(&lock, 2, NULL);
}

static void give(void)
{
    if (atomic_exchange(&lock, 0) == 2)
        CHECK(syscall(SYS_futex, &lock, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0) >= 0);
}

static void *run(void *arg)
{
    char text[64];

    for (int r = 0; r < ROUNDS; r++) {
        take();
        for (int i = 0; i < 300; i++)
            counter += i % 2;
        int n = snprintf(text, sizeof text, "%ld ", counter);
        give();
        guest_write_all(ends[1], text, (size_t)n);
        CHECK(read(ends[0], text, (size_t)n) == n);
    }
    return arg;
}

int main(void)
{
    pthread_t threads[THREADS];

    CHECK(pipe(ends) == 0);
    for (int t = 0; t < THREADS; t++)
        threads[t] = guest_start(run, guest_ptr(t));
    for (int t = 0; t < THREADS; t++)
        guest_join(threads[t]);
    CHECK(counter == (long)THREADS * ROUNDS * 150);
    return guest_ok();
}
