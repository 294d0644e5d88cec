// Shows: rdtscp in a loop without a pause: the counter goes forward, and the processor is one that there is.
// Breaks if: a copy that takes over between the two readings of one instruction keeps its own from those that follow it.
#include "guest.h"
#include <x86intrin.h>

enum { THREADS = 2, BURSTS = 60, READINGS = 2000 };

static void *run(void *arg)
{
    uint64_t last = 0;
    unsigned processor = 0;

    for (int b = 0; b < BURSTS; b++) {
        for (int r = 0; r < READINGS; r++) {
            uint64_t now = __rdtscp(&processor);

            CHECK(now > last && (processor & 0xfff) < 4096);
            last = now;
        }
        guest_pause_us(100);
    }
    return arg;
}

int main(void)
{
    pthread_t t[THREADS];

    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, guest_ptr(i));
    for (int i = 0; i < THREADS; i++)
        CHECK(guest_num(guest_join(t[i])) == i);
    return guest_ok();
}
