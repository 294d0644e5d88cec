// Shows: policy, priority and niceness of threads stay as they were set, long before as well, and new threads inherit them.
// Breaks if: a copy that takes over gives its threads processors and niceness, and leaves their policy as its own.
#include "guest.h"
#include <sched.h>
#include <sys/resource.h>

enum { ROUNDS = 150, THREADS = 4 };

static const struct { int policy, priority, nice; } WAYS[THREADS] = {
    { SCHED_RR, 3, 0 }, { SCHED_BATCH, 0, 4 }, { SCHED_FIFO, 2, 0 }, { SCHED_OTHER, 0, 7 },
};

static void look(long way, int policy)
{
    struct sched_param param;

    CHECK(sched_getscheduler(0) == policy && sched_getparam(0, &param) == 0);
    CHECK(param.sched_priority == WAYS[way].priority);
    errno = 0;
    CHECK(getpriority(PRIO_PROCESS, 0) == WAYS[way].nice && errno == 0);
}

static void *heir(void *arg)
{
    look(guest_num(arg), WAYS[guest_num(arg)].policy);
    return arg;
}

static void *work(void *arg)
{
    long way = guest_num(arg);
    struct sched_param param = { .sched_priority = WAYS[way].priority };
    int policy = WAYS[way].policy;

    if (policy == SCHED_FIFO)
        ZERO(pthread_setschedparam(pthread_self(), policy, &param));
    else
        CHECK(sched_setscheduler(0, policy, &param) == 0);
    CHECK(WAYS[way].nice == 0 || setpriority(PRIO_PROCESS, 0, WAYS[way].nice) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        look(way, policy);
        if (r % 16 == 0)
            guest_join(guest_start(heir, arg));
        guest_pause_us(1000);
    }
    return arg;
}

int main(void)
{
    pthread_t threads[THREADS];

    for (long way = 0; way < THREADS; way++)
        if (geteuid() == 0 || WAYS[way].priority == 0)
            threads[way] = guest_start(work, guest_ptr(way));
    for (long way = 0; way < THREADS; way++)
        if (geteuid() == 0 || WAYS[way].priority == 0)
            guest_join(threads[way]);
    return guest_ok();
}
