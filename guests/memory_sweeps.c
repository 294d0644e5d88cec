// Shows: a program that sweeps its address space: it unmaps, protects, advises, locks and moves what is not mapped, far from everything.
// Breaks if: what is the runtime's goes with it, in both copies at once; or another answer comes than where nothing is mapped.
#include "guest.h"
#include <sys/mman.h>

enum { ROUNDS = 20, THREADS = 3 };

/* Between the program's heap and its libraries, where natively there is nothing. */
static const uintptr_t low = 0x200000000000, high = 0x2affffff0000, step = 0x10000000000;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int turn;

static void sweep(void)
{
    for (uintptr_t at = low; at < high; at += step) {
        void *start = guest_ptr(0);
        memcpy(&start, &at, sizeof start);
        FAILS(mprotect(start, 4096, PROT_READ), ENOMEM);
        FAILS(madvise(start, 4096, MADV_DONTNEED), ENOMEM);
        FAILS(mlock(start, 1L << 36), ENOMEM);
        FAILS(mlock2(start, 4096, MLOCK_ONFAULT), ENOMEM);
        FAILS(munlock(start, 4096), ENOMEM);
        CHECK(mremap(start, 4096, 8192, MREMAP_MAYMOVE) == MAP_FAILED && errno == EFAULT);
        /* Room there, if there is any, is the program's own from then on. */
        void *room = mmap(start, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        CHECK(room == start || errno == ENOMEM);
        ZERO(munmap(start, 4096));
    }
    void *start;
    memcpy(&start, &low, sizeof start);
    ZERO(munmap(start, high - low));
}

static void *work(void *arg)
{
    for (int r = 0; r < ROUNDS; r++) {
        ZERO(pthread_mutex_lock(&lock));
        if (turn % THREADS == (int)guest_num(arg))
            sweep();
        turn++;
        ZERO(pthread_mutex_unlock(&lock));
        guest_pause_us(1500);
    }
    return arg;
}

int main(void)
{
    pthread_t t[THREADS];

    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(work, guest_ptr(i));
    for (int i = 0; i < THREADS; i++)
        CHECK(guest_num(guest_join(t[i])) == i);
    RETURNS(turn, THREADS * ROUNDS);
    return guest_ok();
}
