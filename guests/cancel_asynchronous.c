// Shows: asynchronous cancellation ends a computing thread that reaches no cancellation point; its handler runs.
// Breaks if: the cancellation signal waits for a door that never comes, or the unwinder meets a frame without tables.
// kit: allow unprotected a thread is cancelled between two instructions that no copy can find again
// kit: no-kill protection ends with the first round
// kit: no-record a signal is delivered between two doors, where no replay finds it again: the recording ends there, and says so
#include "guest.h"

enum { ROUNDS = 60 };

static volatile uint64_t sink;
static pthread_barrier_t started;
static long handlers;

static void handler(void *arg)
{
    (void)arg;
    handlers++;
}

static void *compute(void *arg)
{
    int old;

    (void)arg;
    pthread_cleanup_push(handler, NULL);
    pthread_barrier_wait(&started);
    ZERO(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old));
    for (;;)
        sink = guest_mix(sink);
    pthread_cleanup_pop(0);
    return NULL;
}

int main(void)
{
    ZERO(pthread_barrier_init(&started, NULL, 2));
    for (int r = 0; r < ROUNDS; r++) {
        pthread_t t = guest_start(compute, NULL);
        pthread_barrier_wait(&started);
        guest_pause_us(200);
        ZERO(pthread_cancel(t));
        CHECK(guest_join(t) == PTHREAD_CANCELED);
    }
    printf("handlers %ld\n", handlers);
    CHECK(handlers == ROUNDS);
    return guest_ok();
}
