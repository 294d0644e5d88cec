// Shows: 12000 mutexes, far more than there are clocks, locked in pairs and in triples.
// Breaks if: two locks that hash to one clock deadlock in replay, or a clock's tickets are taken out of publication order.
#include "guest.h"

enum { THREADS = 4, LOCKS = 12000, ROUNDS = 50, INNER = 200 };

static struct {
    pthread_mutex_t lock;
    unsigned uses;
} node[LOCKS];

static void touch(unsigned a, unsigned b, unsigned c)
{
    /* Ascending order: the guest itself must not deadlock. */
    if (a > b) { unsigned t = a; a = b; b = t; }
    if (b > c) { unsigned t = b; b = c; c = t; }
    if (a > b) { unsigned t = a; a = b; b = t; }
    ZERO(pthread_mutex_lock(&node[a].lock));
    if (b != a)
        ZERO(pthread_mutex_lock(&node[b].lock));
    if (c != b)
        ZERO(pthread_mutex_lock(&node[c].lock));
    node[a].uses++;
    node[b].uses++;
    node[c].uses++;
    if (c != b)
        ZERO(pthread_mutex_unlock(&node[c].lock));
    if (b != a)
        ZERO(pthread_mutex_unlock(&node[b].lock));
    ZERO(pthread_mutex_unlock(&node[a].lock));
}

static void *run(void *arg)
{
    uint64_t x = (uint64_t)guest_num(arg);

    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 0; i < INNER; i++) {
            x = guest_mix(x);
            touch(x % LOCKS, (x >> 16) % LOCKS, (x >> 32) % LOCKS);
        }
        guest_pause_us(400);
    }
    return NULL;
}

int main(void)
{
    pthread_t t[THREADS];
    uint64_t sum = 0, weighted = 0;

    for (int i = 0; i < LOCKS; i++)
        ZERO(pthread_mutex_init(&node[i].lock, NULL));
    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, guest_ptr(i + 1));
    for (int i = 0; i < THREADS; i++)
        guest_join(t[i]);
    for (uint64_t i = 0; i < LOCKS; i++) {
        sum += node[i].uses;
        weighted += node[i].uses * guest_mix(i);
    }
    printf("uses %lu, weighted %016lx\n", (unsigned long)sum, (unsigned long)weighted);
    CHECK(sum == 3ul * THREADS * ROUNDS * INNER);
    return guest_ok();
}
