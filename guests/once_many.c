// Shows: pthread_once: of many racing threads one runs the routine, and all others see its effects.
// Breaks if: "who ran" is not replayed, or the done flag is released before it is published.
#include "guest.h"

enum { THREADS = 4, ONCES = 100 };

static pthread_once_t once[ONCES];
static int built[ONCES];
static pthread_barrier_t start;
/* The routine has no argument; the barrier keeps all threads on one index at a time. */
static int current;

static void build(void)
{
    built[current] += current + 1;
}

static void *run(void *arg)
{
    int me = (int)guest_num(arg);

    for (int i = 0; i < ONCES; i++) {
        if (me == 0)
            current = i;
        pthread_barrier_wait(&start);
        ZERO(pthread_once(&once[i], build));
        CHECK(built[i] == i + 1);
        pthread_barrier_wait(&start);
        if (i % 4 == me)
            guest_pause_us(500);
    }
    return NULL;
}

int main(void)
{
    const pthread_once_t fresh = PTHREAD_ONCE_INIT;
    pthread_t t[THREADS];
    int sum = 0;

    for (int i = 0; i < ONCES; i++)
        once[i] = fresh;
    ZERO(pthread_barrier_init(&start, NULL, THREADS));
    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, guest_ptr(i));
    for (int i = 0; i < THREADS; i++)
        guest_join(t[i]);
    for (int i = 0; i < ONCES; i++)
        sum += built[i];
    printf("built %d\n", sum);
    CHECK(sum == ONCES * (ONCES + 1) / 2);
    return guest_ok();
}
