// Shows: C11 threads: thrd_create/join results, mtx_ (plain, timed, recursive), cnd_, call_once, tss with destructors.
// Breaks if: only the pthread names are interposed: the C11 names reach glibc's internals on another way.
#include "guest.h"
#include <threads.h>

enum { THREADS = 4, ROUNDS = 90 };

static mtx_t lock, timed, nested;
static cnd_t turned;
static int turn, initialised, destroyed;
static once_flag once = ONCE_FLAG_INIT;
static tss_t key;

static void initialise(void) { initialised++; }

static void destroy(void *value)
{
    mtx_lock(&lock);
    destroyed += *(int *)value;
    mtx_unlock(&lock);
    free(value);
}

static int run(void *arg)
{
    int me = (int)guest_num(arg);
    int *mine = (int *)malloc(sizeof *mine);

    *mine = me + 1;
    CHECK(tss_set(key, mine) == thrd_success);
    call_once(&once, initialise);
    for (int r = 0; r < ROUNDS; r++) {
        CHECK(mtx_lock(&lock) == thrd_success);
        while (turn != me)
            CHECK(cnd_wait(&turned, &lock) == thrd_success);
        turn = (me + 1) % THREADS;
        CHECK(cnd_broadcast(&turned) == thrd_success);
        CHECK(mtx_unlock(&lock) == thrd_success);
        struct timespec soon;
        CHECK(timespec_get(&soon, TIME_UTC) == TIME_UTC);
        CHECK(mtx_timedlock(&timed, &soon) == thrd_timedout);
        CHECK(mtx_trylock(&timed) == thrd_busy);
        CHECK(mtx_lock(&nested) == thrd_success && mtx_lock(&nested) == thrd_success);
        CHECK(mtx_unlock(&nested) == thrd_success && mtx_unlock(&nested) == thrd_success);
        struct timespec pause = { 0, 100000 };
        CHECK(thrd_sleep(&pause, NULL) == 0);
        CHECK(*(int *)tss_get(key) == me + 1);
    }
    if (me % 2)
        thrd_exit(me * 10);
    return me * 10;
}

int main(void)
{
    thrd_t t[THREADS];

    CHECK(mtx_init(&lock, mtx_plain) == thrd_success);
    CHECK(mtx_init(&timed, mtx_timed) == thrd_success);
    CHECK(mtx_init(&nested, mtx_plain | mtx_recursive) == thrd_success);
    CHECK(cnd_init(&turned) == thrd_success);
    CHECK(tss_create(&key, destroy) == thrd_success);
    CHECK(mtx_lock(&timed) == thrd_success);
    for (int i = 0; i < THREADS; i++)
        CHECK(thrd_create(&t[i], run, guest_ptr(i)) == thrd_success);
    for (int i = 0; i < THREADS; i++) {
        int result = -1;
        CHECK(thrd_join(t[i], &result) == thrd_success);
        CHECK(result == i * 10);
    }
    printf("initialised %d, destroyed %d\n", initialised, destroyed);
    CHECK(initialised == 1 && destroyed == THREADS * (THREADS + 1) / 2);
    return guest_ok();
}
