// Shows: threads that race on a counter, a flag and a list without locks: with turns the copies do the same all the same.
// Breaks if: two threads run guest code at once, or a turn is given back where only one copy gives it.
// kit: varies
// kit: stale a race, and beside a recording nobody takes turns
// kit: turns its threads do to each other what no lock orders
// kit: serial one thread at a time: its threads do to each other what no lock orders
/* Whoever waits for long sets a flag that its holder reads without a lock. */
#define WAIT_US 300
#include "interpreter_lock.h"

enum { THREADS = 4, ROUNDS = 120 };

static volatile long counter;
static int ends[2];

static void *run(void *arg)
{
    char text[64];

    for (int r = 0; r < ROUNDS; r++) {
        take();
        for (int i = 0; i < 400; i++) {
            for (int k = 0; k < 200; k++)
                counter = counter + 1;
            if (asked) {
                drop();
                take();
            }
        }
        drop();
        counter = counter + guest_num(arg);
        int n = snprintf(text, sizeof text, "%ld ", counter);
        guest_write_all(ends[1], text, (size_t)n);
        CHECK(read(ends[0], text, (size_t)n) == n);
        guest_pause_us(50);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];

    CHECK(pipe(ends) == 0);
    for (int t = 0; t < THREADS; t++)
        threads[t] = guest_start(run, guest_ptr(t));
    for (int t = 0; t < THREADS; t++)
        guest_join(threads[t]);
    printf("counted %ld\n", counter);
    return guest_ok();
}
