// Shows: a bounded queue of allocated items on a mutex and two condition variables; items pass once and in each producer's order.
// Breaks if: who took which item differs in the standby: it frees another block and the heaps drift apart visibly.
#include "guest.h"

enum { PRODUCERS = 3, CONSUMERS = 2, ITEMS = 900, ROOM = 16 };

struct item {
    int producer, number;
    uint64_t load;
};

static struct item *queue[ROOM];
static unsigned head, tail;
static int producing = PRODUCERS;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t not_full = PTHREAD_COND_INITIALIZER, not_empty = PTHREAD_COND_INITIALIZER;

static void *produce(void *arg)
{
    int me = (int)guest_num(arg);

    for (int i = 0; i < ITEMS; i++) {
        struct item *item = (struct item *)malloc(sizeof *item + (size_t)(i % 200));
        *item = (struct item){ me, i, guest_mix((uint64_t)me << 32 | (unsigned)i) };
        ZERO(pthread_mutex_lock(&lock));
        while (head - tail == ROOM)
            ZERO(pthread_cond_wait(&not_full, &lock));
        queue[head++ % ROOM] = item;
        ZERO(pthread_cond_signal(&not_empty));
        ZERO(pthread_mutex_unlock(&lock));
        if (i % 30 == 0)
            guest_pause_us(500);
    }
    ZERO(pthread_mutex_lock(&lock));
    producing--;
    ZERO(pthread_cond_broadcast(&not_empty));
    ZERO(pthread_mutex_unlock(&lock));
    return NULL;
}

static void *consume(void *arg)
{
    uint64_t *sum = (uint64_t *)arg;
    int last[PRODUCERS] = { -1, -1, -1 };

    for (;;) {
        ZERO(pthread_mutex_lock(&lock));
        while (head == tail && producing)
            ZERO(pthread_cond_wait(&not_empty, &lock));
        struct item *item = head == tail ? NULL : queue[tail++ % ROOM];
        ZERO(pthread_cond_signal(&not_full));
        ZERO(pthread_mutex_unlock(&lock));
        if (!item)
            return NULL;
        CHECK(item->number > last[item->producer]);
        last[item->producer] = item->number;
        *sum += item->load;
        free(item);
    }
}

int main(void)
{
    pthread_t t[PRODUCERS + CONSUMERS];
    uint64_t sum[CONSUMERS] = { 0 }, want = 0;

    for (int i = 0; i < PRODUCERS; i++)
        t[i] = guest_start(produce, guest_ptr(i));
    for (int i = 0; i < CONSUMERS; i++)
        t[PRODUCERS + i] = guest_start(consume, &sum[i]);
    for (int i = 0; i < PRODUCERS + CONSUMERS; i++)
        guest_join(t[i]);
    for (int p = 0; p < PRODUCERS; p++)
        for (int i = 0; i < ITEMS; i++)
            want += guest_mix((uint64_t)p << 32 | (unsigned)i);
    printf("sum %016lx\n", (unsigned long)(sum[0] + sum[1]));
    CHECK(sum[0] + sum[1] == want);
    return guest_ok();
}
