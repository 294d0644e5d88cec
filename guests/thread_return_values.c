// Shows: results through return, pthread_exit and cancellation; tryjoin and timedjoin tell "not yet" from "done".
// Breaks if: a join's outcome is taken from the standby's own threads, which may be behind.
#include "guest.h"

enum { ROUNDS = 60 };

static pthread_barrier_t gate;

static void *wait_and_return(void *arg)
{
    pthread_barrier_wait(&gate);
    return guest_ptr(guest_num(arg) * 2);
}

static void *by_exit(void *arg)
{
    pthread_exit(guest_ptr(guest_num(arg) * 3));
}

int main(void)
{
    long sum = 0;

    ZERO(pthread_barrier_init(&gate, NULL, 2));
    for (long r = 1; r <= ROUNDS; r++) {
        void *result;
        pthread_t a = guest_start(wait_and_return, guest_ptr(r)), b = guest_start(by_exit, guest_ptr(r));
        RETURNS(pthread_tryjoin_np(a, &result), EBUSY);
        struct timespec soon = guest_deadline(CLOCK_REALTIME, 200);
        RETURNS(pthread_timedjoin_np(a, &result, &soon), ETIMEDOUT);
        pthread_barrier_wait(&gate);
        struct timespec far = guest_deadline(CLOCK_MONOTONIC, 60 * 1000000L);
        ZERO(pthread_clockjoin_np(a, &result, CLOCK_MONOTONIC, &far));
        CHECK(guest_num(result) == r * 2);
        sum += guest_num(result) + guest_num(guest_join(b));
        RETURNS(pthread_join(pthread_self(), NULL), EDEADLK);
        guest_pause_us(100);
    }
    printf("sum %ld\n", sum);
    return guest_ok();
}
