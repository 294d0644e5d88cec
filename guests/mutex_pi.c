// Shows: a priority-inheritance mutex excludes under contention; its futex word holds a thread id that the kernel reads.
// Breaks if: the word holds the group's id while the kernel expects the real one (ESRCH, EDEADLK after a failover).
#include "guest.h"

enum { THREADS = 4, ROUNDS = 60, INNER = 60 };

static pthread_mutex_t lock;
static long counter;
static int inside;

static void *run(void *arg)
{
    (void)arg;
    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 0; i < INNER; i++) {
            ZERO(pthread_mutex_lock(&lock));
            CHECK(inside == 0);
            inside = 1;
            counter++;
            inside = 0;
            ZERO(pthread_mutex_unlock(&lock));
        }
        guest_pause_us(300);
    }
    return NULL;
}

int main(void)
{
    pthread_mutexattr_t attr;
    pthread_t t[THREADS];

    ZERO(pthread_mutexattr_init(&attr));
    ZERO(pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT));
    ZERO(pthread_mutex_init(&lock, &attr));
    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, NULL);
    for (int i = 0; i < THREADS; i++)
        guest_join(t[i]);
    printf("counter %ld\n", counter);
    CHECK(counter == (long)THREADS * ROUNDS * INNER);
    return guest_ok();
}
