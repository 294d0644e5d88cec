/* A function that is made at run time, as a just-in-time compiler does, and threads that race in it. */
#ifndef MADE_CODE_H
#define MADE_CODE_H

#include "guest.h"

#include <sys/mman.h>

enum { THREADS = 4, ROUNDS = 100, CODE_BYTES = 1 << 20 };

static long counter;
static long (*add)(long *);

/* mov rax, [rdi]; inc rax; mov [rdi], rax; ret */
static const unsigned char ADD[] = { 0x48, 0x8b, 0x07, 0x48, 0xff, 0xc0, 0x48, 0x89, 0x07, 0xc3 };

static inline void make_code(void)
{
    void *code = mmap(NULL, CODE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(code != MAP_FAILED);
    memcpy(code, ADD, sizeof ADD);
    CHECK(mprotect(code, CODE_BYTES, PROT_READ | PROT_EXEC) == 0);
    memcpy(&add, &code, sizeof add);
}

/* What each one finds goes out, so that a copy that found something else would show it. */
static void *race(void *arg)
{
    char text[64];
    int *ends = arg;

    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 0; i < 20000; i++)
            add(&counter);
        int n = snprintf(text, sizeof text, "%ld ", counter);
        guest_write_all(ends[1], text, (size_t)n);
        CHECK(read(ends[0], text, (size_t)n) == n);
        guest_pause_us(50);
    }
    return NULL;
}

static void run_threads(void)
{
    pthread_t threads[THREADS];
    int ends[2];

    CHECK(pipe(ends) == 0);
    for (int t = 0; t < THREADS; t++)
        threads[t] = guest_start(race, ends);
    for (int t = 0; t < THREADS; t++)
        guest_join(threads[t]);
}

#endif
