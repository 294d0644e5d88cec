// Shows: the "racey" idea with every shared access under a lock: the signature depends on the order of all
//        critical sections, so two copies agree on it only if that order was carried over exactly.
// Breaks if: one acquisition anywhere is replayed out of order.
// kit: varies
#include "guest.h"

enum { THREADS = 4, CELLS = 64, STEPS = 4000 };

static struct {
    pthread_mutex_t lock;
    uint32_t value;
} cell[CELLS];
static uint32_t signature[THREADS];

static uint32_t get(uint32_t at)
{
    ZERO(pthread_mutex_lock(&cell[at % CELLS].lock));
    uint32_t value = cell[at % CELLS].value;
    ZERO(pthread_mutex_unlock(&cell[at % CELLS].lock));
    return value;
}

static void stir(uint32_t at, uint32_t with)
{
    ZERO(pthread_mutex_lock(&cell[at % CELLS].lock));
    cell[at % CELLS].value = (uint32_t)guest_mix(cell[at % CELLS].value ^ with);
    ZERO(pthread_mutex_unlock(&cell[at % CELLS].lock));
}

static void *run(void *arg)
{
    uint32_t mine = (uint32_t)guest_num(arg) + 1;

    for (int s = 0; s < STEPS; s++) {
        uint32_t here = get(mine), there = get(here);
        mine = (uint32_t)guest_mix((uint64_t)mine << 32 | (here ^ there));
        stir(here, mine);
        if (s % 80 == 0)
            guest_pause_us(300);
    }
    signature[guest_num(arg)] = mine;
    return NULL;
}

int main(void)
{
    pthread_t t[THREADS];
    uint32_t all = 0;

    for (uint32_t i = 0; i < CELLS; i++) {
        ZERO(pthread_mutex_init(&cell[i].lock, NULL));
        cell[i].value = i;
    }
    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, guest_ptr(i));
    for (int i = 0; i < THREADS; i++) {
        guest_join(t[i]);
        all = all * 31 + signature[i];
    }
    for (uint32_t i = 0; i < CELLS; i++)
        all = all * 31 + cell[i].value;
    printf("signature %08x\n", all);
    return guest_ok();
}
