/* A lock of the program's own, made of atomics and futex calls, and threads that race for it. Who includes this says by OPERATION how the
 * calls name what they do. */
#ifndef OWN_LOCKS_H
#define OWN_LOCKS_H

#include "guest.h"

#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/syscall.h>

enum { THREADS = 4 };

/* 0 free, 1 held, 2 held and waited for. */
static atomic_int lock;
static long counter;
static int ends[2];

static inline void wait_for(atomic_int *word, int value, const struct timespec *limit)
{
    long result = syscall(SYS_futex, word, OPERATION(FUTEX_WAIT), value, limit, NULL, 0);
    CHECK(result == 0 || errno == EAGAIN || errno == EINTR || errno == ETIMEDOUT);
}

static inline void wake(atomic_int *word, int count)
{
    CHECK(syscall(SYS_futex, word, OPERATION(FUTEX_WAKE), count, NULL, NULL, 0) >= 0);
}

static inline void take(void)
{
    int free = 0;

    if (atomic_compare_exchange_strong(&lock, &free, 1))
        return;
    while (atomic_exchange(&lock, 2) != 0)
        wait_for(&lock, 2, NULL);
}

static inline void give(void)
{
    if (atomic_exchange(&lock, 0) == 2)
        wake(&lock, 1);
}

/* What a thread does: in which order they come is seen by what each writes. */
static inline void race(int rounds)
{
    char text[64];

    for (int r = 0; r < rounds; r++) {
        take();
        for (int i = 0; i < 300; i++)
            counter += i % 2;
        int n = snprintf(text, sizeof text, "%ld ", counter);
        give();
        guest_write_all(ends[1], text, (size_t)n);
        CHECK(read(ends[0], text, (size_t)n) == n);
    }
}

#endif
