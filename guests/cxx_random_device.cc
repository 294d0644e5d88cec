// Shows: std::random_device, in threads: numbers that a copy must know too.
// Breaks if: each copy draws its own from the processor: the value kept in memory differs from the one that was written out.
#include "guest.h"
#include <random>

enum { THREADS = 3, ROUNDS = 60 };

static int ends[THREADS][2];

static void *draw(void *arg)
{
    int *own = ends[guest_num(arg)];
    std::random_device device, named("/dev/urandom");
    unsigned first = device(), all = 0;

    for (int r = 0; r < ROUNDS; r++) {
        unsigned drawn[2] = { device(), named() }, back[2];
        std::mt19937 seeded(device());
        unsigned long last = seeded(), again;
        guest_write_all(own[1], drawn, sizeof drawn);
        guest_write_all(own[1], &last, sizeof last);
        guest_pause_us(1000);
        guest_read_all(own[0], back, sizeof back);
        guest_read_all(own[0], &again, sizeof again);
        CHECK(drawn[0] == back[0] && drawn[1] == back[1] && last == again);
        all |= drawn[0] ^ first;
    }
    CHECK(all != 0 && device.entropy() >= 0);
    return NULL;
}

int main()
{
    pthread_t threads[THREADS];

    for (long t = 0; t < THREADS; t++) {
        CHECK(pipe(ends[t]) == 0);
        threads[t] = guest_start(draw, guest_ptr(t));
    }
    for (int t = 0; t < THREADS; t++)
        guest_join(threads[t]);
    printf("rounds %d\n", THREADS * ROUNDS);
    return guest_ok();
}
