// Shows: thousands of threads at once are followed: each has its slot, its stack and its place in the order.
// Breaks if: a slot beyond the first thousand has no block, no entry or no ring in one of the copies.
// kit: varies
#include "guest.h"

enum { THREADS = 2500, STACK = 64 << 10, TURNS = 4 };

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t opens = PTHREAD_COND_INITIALIZER;
static int arrived;
static uint64_t digest;

static void *take_turns(void *arg)
{
    char on_stack[64];

    snprintf(on_stack, sizeof on_stack, "%ld at %p", (long)guest_num(arg), (void *)on_stack);
    ZERO(pthread_mutex_lock(&gate));
    arrived++;
    if (arrived == THREADS)
        ZERO(pthread_cond_broadcast(&opens));
    while (arrived < THREADS)
        ZERO(pthread_cond_wait(&opens, &gate));
    for (int turn = 0; turn < TURNS; turn++) {
        for (const char *at = on_stack; *at; at++)
            digest = (digest ^ (unsigned char)*at) * 1099511628211u;
        ZERO(pthread_mutex_unlock(&gate));
        if (turn == TURNS / 2)
            CHECK(write(1, "", 0) == 0);
        ZERO(pthread_mutex_lock(&gate));
    }
    ZERO(pthread_mutex_unlock(&gate));
    return arg;
}

int main(void)
{
    static pthread_t threads[THREADS];
    pthread_attr_t small;

    ZERO(pthread_attr_init(&small));
    ZERO(pthread_attr_setstacksize(&small, STACK));
    for (int i = 0; i < THREADS; i++)
        ZERO(pthread_create(&threads[i], &small, take_turns, guest_ptr(i)));
    for (int i = 0; i < THREADS; i++) {
        void *result;
        ZERO(pthread_join(threads[i], &result));
        CHECK(guest_num(result) == i);
    }
    ZERO(pthread_attr_destroy(&small));
    printf("%016llx\n", (unsigned long long)digest);
    return guest_ok();
}
