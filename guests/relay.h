/* relay.h: pairs of threads that hand each other numbers in strict turns, each through an object of its own.
 *
 * A turn has often been answered before the call that gave it comes back: what a copy does a second time, or not at
 * all, shows as a number that is not the one awaited.
 */
#ifndef UNDERSTUDY_RELAY_H
#define UNDERSTUDY_RELAY_H

#include "guest.h"

struct relay {
    /* The ends of the first and of the second thread. */
    int fd[2];
    /* Puts a number in, and takes the next one out, as the first or the second thread. */
    void (*put)(struct relay *, int end, uint64_t number);
    uint64_t (*take)(struct relay *, int end);
    long rounds;
};

static void *relay_first(void *arg)
{
    struct relay *r = (struct relay *)arg;

    for (long n = 1; n <= r->rounds; n++) {
        r->put(r, 0, (uint64_t)n);
        CHECK(r->take(r, 0) == (uint64_t)n + 1);
    }
    return NULL;
}

static void *relay_second(void *arg)
{
    struct relay *r = (struct relay *)arg;

    for (long n = 1; n <= r->rounds; n++) {
        CHECK(r->take(r, 1) == (uint64_t)n);
        r->put(r, 1, (uint64_t)n + 1);
    }
    return NULL;
}

/* All pairs at the same time; returns when all have come to their end. */
static inline void relay_all(struct relay *relays, int count, long rounds)
{
    pthread_t threads[64];

    CHECK(2 * count <= 64);
    for (int i = 0; i < count; i++) {
        relays[i].rounds = rounds;
        threads[2 * i] = guest_start(relay_second, &relays[i]);
        threads[2 * i + 1] = guest_start(relay_first, &relays[i]);
    }
    for (int i = 0; i < 2 * count; i++)
        guest_join(threads[i]);
    printf("%d pairs, %ld rounds\n", count, rounds);
}

#endif
