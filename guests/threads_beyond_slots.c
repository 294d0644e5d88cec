// Shows: more threads at once than can be followed: all of them run, are signalled, cancelled, joined and replaced, as many times as asked,
//        and wait for another's end no longer than they say.
// Breaks if: a program is refused its 4096th thread, or one beyond the slots is not a thread like any other.
// kit: no-kill with so many threads there is no standby, and a new one comes only once they have ended
// kit: no-record with so many threads the recording ends
// kit: allow unprotected with so many threads there is no standby
// kit: allow standby_lost as above
#include "guest.h"

#include <semaphore.h>
#include <signal.h>

enum { THREADS = 4200, ROUNDS = 2, STACK = 64 << 10 };

static sem_t begun;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_t first, last;
static sem_t handled;

static void on_signal(int number)
{
    (void)number;
    if (pthread_equal(pthread_self(), last))
        ZERO(sem_post(&handled));
}

static void *wait_at_gate(void *arg)
{
    ZERO(sem_post(&begun));
    ZERO(pthread_mutex_lock(&gate));
    ZERO(pthread_mutex_unlock(&gate));
    return arg;
}

static void *wait_for_end(void *arg)
{
    struct timespec soon = guest_deadline(CLOCK_REALTIME, 20000);
    RETURNS(pthread_timedjoin_np(first, NULL, &soon), ETIMEDOUT);
    ZERO(sem_post(&begun));
    for (;;)
        pause();
    return arg;
}

static pthread_t start(void *(*run)(void *), long arg)
{
    pthread_attr_t small;
    pthread_t made;

    ZERO(pthread_attr_init(&small));
    ZERO(pthread_attr_setstacksize(&small, STACK));
    ZERO(pthread_create(&made, &small, run, guest_ptr(arg)));
    ZERO(pthread_attr_destroy(&small));
    return made;
}

int main(void)
{
    static pthread_t threads[THREADS];
    struct sigaction action = {.sa_handler = on_signal};

    ZERO(sem_init(&begun, 0, 0));
    ZERO(sem_init(&handled, 0, 0));
    ZERO(sigaction(SIGUSR1, &action, NULL));
    for (int r = 0; r < ROUNDS; r++) {
        ZERO(pthread_mutex_lock(&gate));
        for (int i = 0; i < THREADS; i++) {
            threads[i] = start(i == THREADS - 1 ? wait_for_end : wait_at_gate, i);
            if (i == 0)
                first = threads[0];
        }
        for (int i = 0; i < THREADS; i++)
            while (sem_wait(&begun) != 0)
                ;
        last = threads[THREADS - 1];
        ZERO(pthread_kill(last, SIGUSR1));
        while (sem_wait(&handled) != 0)
            ;
        ZERO(pthread_cancel(last));
        ZERO(pthread_mutex_unlock(&gate));
        for (int i = 0; i < THREADS; i++) {
            void *result;
            ZERO(pthread_join(threads[i], &result));
            CHECK(i == THREADS - 1 ? result == PTHREAD_CANCELED : guest_num(result) == i);
        }
    }
    return guest_ok();
}
