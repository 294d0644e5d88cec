// Shows: a thread that looks at clocks and comes to no other door gives its turn to one that waits for it.
// Breaks if: the waiting thread takes its turn at the other one's side, where no copy can find the same instruction.
// kit: varies
// kit: turns a flag is passed without a lock
// kit: stale a race, and beside a recording nobody takes turns
// kit: no-record in a recording a thread is waited for until it has computed for long
#include "guest.h"

#include <stdatomic.h>
#include <sys/syscall.h>

enum { TIMES = 8 };

/* As an interpreter's threads ask for its lock: who waits sets it, who computes looks at it now and then. */
static atomic_int asked;
static atomic_int done;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;

static void *ask(void *arg)
{
    while (!atomic_load(&done)) {
        struct timespec soon;
        CHECK(clock_gettime(CLOCK_REALTIME, &soon) == 0);
        soon.tv_nsec += 5000000;
        if (soon.tv_nsec >= 1000000000) {
            soon.tv_nsec -= 1000000000;
            soon.tv_sec++;
        }
        ZERO(pthread_mutex_lock(&mutex));
        int error = pthread_cond_timedwait(&cond, &mutex, &soon);
        CHECK(error == 0 || error == ETIMEDOUT);
        ZERO(pthread_mutex_unlock(&mutex));
        atomic_store(&asked, 1);
    }
    return arg;
}

int main(void)
{
    int ends[2];
    volatile long sum = 0;
    long loops = 0;

    CHECK(pipe(ends) == 0);
    pthread_t thread = guest_start(ask, NULL);
    for (int times = 0; times < TIMES; loops++) {
        struct timespec now;
        for (int i = 0; i < 3000; i++)
            sum += i;
        /* One by libc, one by an instruction of its own. */
        if (loops % 2 == 0)
            CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
        else
            CHECK(syscall(SYS_getppid) > 0);
        if (atomic_exchange(&asked, 0)) {
            char text[32];
            int n = snprintf(text, sizeof text, "%ld", loops);
            guest_write_all(ends[1], text, (size_t)n);
            CHECK(read(ends[0], text, (size_t)n) == n);
            times++;
        }
    }
    atomic_store(&done, 1);
    guest_join(thread);
    return guest_ok();
}
