// Shows: each thread's processors, policy and priority: set for itself and for others by number, inherited by new threads, asked about from outside; processors that there are not.
// Breaks if: a standby's own place is told as the guest's, or what was set for a thread is not so in the promoted copy.
#include "guest.h"
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>

enum { ROUNDS = 40 };

static int first = -1;
static pthread_barrier_t steps;

static void *work(void *arg)
{
    struct sched_param param;
    cpu_set_t set;
    int policy;

    for (int r = 0; r < ROUNDS; r++) {
        CHECK(pthread_getaffinity_np(pthread_self(), sizeof set, &set) == 0 && CPU_COUNT(&set) == 1 && CPU_ISSET(first, &set));
        CHECK(sched_getaffinity((pid_t)syscall(SYS_gettid), sizeof set, &set) == 0 && CPU_COUNT(&set) == 1);
        ZERO(pthread_getschedparam(pthread_self(), &policy, &param));
        CHECK(policy == SCHED_OTHER && param.sched_priority == 0 && sched_getscheduler(0) == SCHED_OTHER);
        CHECK(getpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid)) == 4);
        pthread_barrier_wait(&steps);
        guest_pause_us(1200);
    }
    return arg;
}

int main(void)
{
    cpu_set_t all, one, more, told;

    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    for (int cpu = 0; cpu < CPU_SETSIZE && first < 0; cpu++)
        if (CPU_ISSET(cpu, &all))
            first = cpu;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    ZERO(pthread_barrier_init(&steps, NULL, 2));
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0 && setpriority(PRIO_PROCESS, 0, 4) == 0);
    pthread_t t = guest_start(work, NULL);
    for (int r = 0; r < ROUNDS; r++) {
        CHECK(pthread_setaffinity_np(pthread_self(), sizeof all, r % 2 ? &one : &all) == 0);
        CHECK(sched_getaffinity(0, sizeof told, &told) == 0 && CPU_EQUAL(&told, r % 2 ? &one : &all));
        CHECK(pthread_getaffinity_np(t, sizeof told, &told) == 0 && CPU_EQUAL(&told, &one));
        /* One that this machine does not have: the kernel leaves it out. */
        more = one;
        CPU_SET(sysconf(_SC_NPROCESSORS_CONF) < 63 ? 63 : CPU_SETSIZE - 1, &more);
        CHECK(sched_setaffinity(0, sizeof more, &more) == 0 && sched_getaffinity(0, sizeof told, &told) == 0);
        CHECK(CPU_EQUAL(&told, &one));
        CHECK(getpriority(PRIO_PROCESS, 0) == 4 && sched_get_priority_max(SCHED_FIFO) == 99);
        pthread_barrier_wait(&steps);
        CHECK(sched_yield() == 0);
    }
    guest_join(t);
    CPU_ZERO(&told);
    FAILS(sched_setaffinity(0, sizeof told, &told), EINVAL);
    return guest_ok();
}
