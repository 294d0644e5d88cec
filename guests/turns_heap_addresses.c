// Shows: with turns the heap's addresses are the same in every copy, also of blocks that an allocator maps, moves and unmaps.
// Breaks if: the kernel chooses where those lie, by what else a copy has mapped.
// kit: varies
// kit: stale beside a recording nobody takes turns
// kit: no-record in a recording an allocator's blocks lie where the kernel puts them
// kit: turns a program that acts on addresses of the heap
#include "guest.h"

enum { THREADS = 6, ROUNDS = 20, GENERATIONS = 8 };

static int out;

static void *run(void *arg)
{
    char text[128];

    for (int r = 0; r < ROUNDS; r++) {
        char *small = malloc(100 + (size_t)guest_num(arg) * 10);
        char *large = malloc(300000), *middle = malloc(5000);
        CHECK(small != NULL && large != NULL && middle != NULL);
        large[299999] = (char)r;
        large = realloc(large, 3000000 + (size_t)r * 100000);
        CHECK(large != NULL && large[299999] == (char)r);
        int n = snprintf(text, sizeof text, "%p %p %p\n", (void *)small, (void *)large, (void *)middle);
        /* Whoever follows has to put out the same. */
        CHECK(write(out, text, (size_t)n) == n);
        free(large);
        free(middle);
        if (r % 2)
            free(small);
        guest_pause_us(100);
    }
    return NULL;
}

int main(void)
{
    out = open("/dev/null", O_WRONLY);
    CHECK(out >= 0);
    for (int g = 0; g < GENERATIONS; g++) {
        pthread_t threads[THREADS];
        for (int t = 0; t < THREADS; t++)
            threads[t] = guest_start(run, guest_ptr(t));
        for (int t = 0; t < THREADS; t++)
            guest_join(threads[t]);
    }
    return guest_ok();
}
