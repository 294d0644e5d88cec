// Shows: detached threads that make each other: two makers at once, and chains.
// Breaks if: a slot, and the stack in it, is given away while its thread is being made.
#include "guest.h"

enum { MADE = 400, CHAIN = 150, CHAINS = 3, STACK = 64 << 10 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static long count;
static pthread_attr_t detached;

static void tell(void)
{
    ZERO(pthread_mutex_lock(&lock));
    count++;
    ZERO(pthread_cond_signal(&ended));
    ZERO(pthread_mutex_unlock(&lock));
}

static void await_count(long wanted)
{
    ZERO(pthread_mutex_lock(&lock));
    while (count < wanted)
        ZERO(pthread_cond_wait(&ended, &lock));
    ZERO(pthread_mutex_unlock(&lock));
}

/* On its stack nobody else writes. */
static void *mark(void *arg)
{
    volatile long words[64];

    for (int i = 0; i < 64; i++)
        words[i] = guest_num(arg) + i;
    for (int i = 0; i < 64; i++)
        CHECK(words[i] == guest_num(arg) + i);
    tell();
    return NULL;
}

static void *maker(void *arg)
{
    for (int i = 0; i < MADE; i++) {
        pthread_t made;
        ZERO(pthread_create(&made, &detached, mark, guest_ptr(guest_num(arg) * MADE + i)));
    }
    return NULL;
}

static void *chain(void *arg)
{
    pthread_t next;

    if (guest_num(arg) > 0)
        ZERO(pthread_create(&next, &detached, chain, guest_ptr(guest_num(arg) - 1)));
    else
        tell();
    return NULL;
}

int main(void)
{
    pthread_t makers[2], made;
    long wanted = 0;

    ZERO(pthread_attr_init(&detached));
    ZERO(pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED));
    ZERO(pthread_attr_setstacksize(&detached, STACK));
    for (int i = 0; i < 2; i++)
        makers[i] = guest_start(maker, guest_ptr(i));
    for (int i = 0; i < 2; i++)
        guest_join(makers[i]);
    await_count(wanted += 2 * MADE);
    for (int i = 0; i < CHAINS; i++)
        ZERO(pthread_create(&made, &detached, chain, guest_ptr(CHAIN)));
    await_count(wanted += CHAINS);
    printf("ended %ld\n", count);
    return guest_ok();
}
