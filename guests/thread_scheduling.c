// Shows: threads made with a policy, a priority or processors of their own have them before their first instruction, or are not made.
// Breaks if: what a maker asks of the scheduler for its new thread is not where a standby looks for it, or a thread runs that could not be made.
#include "guest.h"
#include <sched.h>

enum { ROUNDS = 12 };

static int first = -1;
static int ran;

static void *work(void *arg)
{
    cpu_set_t set;
    struct sched_param param;
    int policy;
    long way = guest_num(arg);

    __atomic_add_fetch(&ran, 1, __ATOMIC_SEQ_CST);
    ZERO(pthread_getschedparam(pthread_self(), &policy, &param));
    CHECK(policy == (way == 2 ? SCHED_FIFO : way == 1 ? SCHED_RR : SCHED_OTHER));
    CHECK(param.sched_priority == (way == 1 || way == 2 ? 5 : 0) && sched_getscheduler(0) == policy);
    CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
    CHECK(way != 3 || (CPU_COUNT(&set) == 1 && CPU_ISSET(first, &set)));
    return arg;
}

int main(void)
{
    cpu_set_t all, one, none;
    int may_fifo = geteuid() == 0, made = 0;

    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    for (int cpu = 0; cpu < CPU_SETSIZE && first < 0; cpu++)
        if (CPU_ISSET(cpu, &all))
            first = cpu;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    CPU_ZERO(&none);
    for (int r = 0; r < ROUNDS; r++) {
        for (long way = 0; way < 5; way++) {
            pthread_attr_t attr;
            struct sched_param param = { .sched_priority = way == 1 || way == 2 ? 5 : 0 };
            pthread_t thread;
            if ((way == 1 || way == 2) && !may_fifo)
                continue;
            ZERO(pthread_attr_init(&attr));
            if (way < 3) {
                ZERO(pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED));
                ZERO(pthread_attr_setschedpolicy(&attr, way == 2 ? SCHED_FIFO : way == 1 ? SCHED_RR : SCHED_OTHER));
                ZERO(pthread_attr_setschedparam(&attr, &param));
            } else {
                ZERO(pthread_attr_setaffinity_np(&attr, sizeof one, way == 3 ? &one : &none));
            }
            int rc = pthread_create(&thread, &attr, work, guest_ptr(way));
            CHECK(rc == (way == 4 ? EINVAL : 0));
            if (rc == 0) {
                CHECK(guest_num(guest_join(thread)) == way);
                made++;
            }
            ZERO(pthread_attr_destroy(&attr));
            guest_pause_us(1000);
        }
    }
    CHECK(ran == made);
    return guest_ok();
}
