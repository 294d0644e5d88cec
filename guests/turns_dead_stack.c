// Shows: a program that takes any word on its stack for a pointer, as conservative collectors of garbage do, with threads that take turns.
// Breaks if: what a door has left below the stack pointer, or in registers, differs between the copies.
// kit: varies
// kit: turns collectors of that kind come with threads that race
// kit: stale beside a recording nobody takes turns, and frames are not cleared
// kit: serial one thread at a time
#include "guest.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum { THREADS = 4, ROUNDS = 120, WORDS = 2500, ARENA = 1 << 16 };

/* All that the threads hand to a door lies here, so a word that points here is one of theirs. */
static struct arena {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    struct place {
        struct timespec time;
        long numbers[64];
    } places[THREADS];
} *arena;
static int ends[2];
static long found_in_all;

/* What is there before anybody has written to it. */
__attribute__((noinline)) static long scan(void)
{
    uintptr_t words[WORDS];
    long found = 0;

    __asm__ volatile("" : "=m"(words));
    for (int i = 0; i < WORDS; i++)
        if (words[i] - (uintptr_t)arena < ARENA)
            found += i + 1;
    return found;
}

/* What the last function has left in registers that it may change, as the next one to save them would put it on the stack. */
#define COUNT_REGISTERS(place) do { \
    uintptr_t words[14]; \
    __asm__ volatile("mov %%rsi, (%0)\n\tmov %%rdi, 8(%0)\n\tmov %%r8, 16(%0)\n\tmov %%r9, 24(%0)\n\t" \
        "mov %%r10, 32(%0)\n\tmov %%r11, 40(%0)\n\tmovdqu %%xmm0, 48(%0)\n\tmovdqu %%xmm1, 64(%0)\n\t" \
        "movdqu %%xmm2, 80(%0)\n\tmovdqu %%xmm3, 96(%0)" : : "b"(words) : "memory"); \
    for (int w = 0; w < 14; w++) \
        (place)->numbers[3] ^= (long)words[w]; \
} while (0)

static void pass_door(struct place *place, int round)
{
    int error;

    struct timespec soon;

    switch (round % 6) {
    case 0:
        CHECK(clock_gettime(CLOCK_MONOTONIC, &place->time) == 0);
        break;
    case 1:
        error = pthread_mutex_lock(&arena->mutex);
        COUNT_REGISTERS(place);
        CHECK(error == 0);
        ZERO(pthread_mutex_unlock(&arena->mutex));
        break;
    case 2:
        CHECK(clock_gettime(CLOCK_REALTIME, &soon) == 0);
        soon.tv_nsec = (soon.tv_nsec + 100000) % 1000000000;
        ZERO(pthread_mutex_lock(&arena->mutex));
        error = pthread_cond_timedwait(&arena->cond, &arena->mutex, &soon);
        COUNT_REGISTERS(place);
        CHECK(error == 0 || error == ETIMEDOUT);
        ZERO(pthread_mutex_unlock(&arena->mutex));
        break;
    case 3:
        error = pthread_cond_broadcast(&arena->cond);
        COUNT_REGISTERS(place);
        CHECK(error == 0);
        break;
    case 4:
        CHECK(syscall(SYS_getppid) > 0);
        break;
    default:
        guest_write_all(ends[1], place->numbers, sizeof place->numbers);
        for (size_t done = 0; done < sizeof place->numbers;) {
            ssize_t n = read(ends[0], (char *)place->numbers + done, sizeof place->numbers - done);
            CHECK(n > 0);
            done += (size_t)n;
        }
    }
}

static void *run(void *arg)
{
    struct place *place = &arena->places[(intptr_t)arg];

    for (int r = 0; r < ROUNDS; r++) {
        pass_door(place, r + (int)(intptr_t)arg);
        long found = scan();
        /* What it puts out depends on that, and its standby is compared with it. */
        ZERO(pthread_mutex_lock(&arena->mutex));
        found_in_all += found;
        char text[32];
        int n = snprintf(text, sizeof text, "%ld", found);
        guest_write_all(ends[1], text, (size_t)n);
        CHECK(read(ends[0], text, (size_t)n) == n);
        ZERO(pthread_mutex_unlock(&arena->mutex));
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];

    arena = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(arena != MAP_FAILED);
    ZERO(pthread_mutex_init(&arena->mutex, NULL));
    ZERO(pthread_cond_init(&arena->cond, NULL));
    CHECK(pipe(ends) == 0);
    for (int t = 0; t < THREADS; t++)
        threads[t] = guest_start(run, guest_ptr(t));
    for (int t = 0; t < THREADS; t++)
        guest_join(threads[t]);
    return guest_ok();
}
