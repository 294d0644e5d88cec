// Shows: pthread_exit deep in a call stack runs cleanup handlers, innermost first, then key destructors.
// Breaks if: a frame of the runtime without unwind tables lies below guest code: the forced unwind then aborts.
#include "guest.h"

enum { THREADS = 4, ROUNDS = 40, DEPTH = 5 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_key_t key;
static long cleanups, destructions;

struct trail {
    int last;
};

static void cleanup(void *arg)
{
    struct trail *trail = (struct trail *)arg;

    CHECK(--trail->last >= 0);
    ZERO(pthread_mutex_lock(&lock));
    cleanups++;
    ZERO(pthread_mutex_unlock(&lock));
}

static void destroy(void *arg)
{
    CHECK(((struct trail *)arg)->last == 0);
    ZERO(pthread_mutex_lock(&lock));
    destructions++;
    ZERO(pthread_mutex_unlock(&lock));
    free(arg);
}

static void __attribute__((noinline)) descend(struct trail *trail)
{
    if (trail->last > DEPTH)
        return;
    pthread_cleanup_push(cleanup, trail);
    if (++trail->last == DEPTH)
        pthread_exit(guest_ptr(42));
    descend(trail);
    pthread_cleanup_pop(0);
}

static void *run(void *arg)
{
    struct trail *trail = (struct trail *)calloc(1, sizeof *trail);

    (void)arg;
    ZERO(pthread_setspecific(key, trail));
    descend(trail);
    return NULL;
}

int main(void)
{
    ZERO(pthread_key_create(&key, destroy));
    for (int r = 0; r < ROUNDS; r++) {
        pthread_t t[THREADS];
        for (int i = 0; i < THREADS; i++)
            t[i] = guest_start(run, NULL);
        for (int i = 0; i < THREADS; i++)
            CHECK(guest_num(guest_join(t[i])) == 42);
        guest_pause_us(300);
    }
    printf("cleanups %ld, destructions %ld\n", cleanups, destructions);
    CHECK(cleanups == ROUNDS * THREADS * DEPTH && destructions == ROUNDS * THREADS);
    return guest_ok();
}
