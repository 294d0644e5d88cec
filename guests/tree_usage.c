// Shows: the processor time of children: wait4 tells each one's, RUSAGE_CHILDREN and times their sum, and neither goes back.
// Breaks if: what ended children have used is told anew in the parent's other copy, or a child's own begins again.
// kit: tree
#include "guest.h"
#include <sys/resource.h>
#include <sys/times.h>
#include <sys/wait.h>

enum { CHILDREN = 16 };

static int64_t us(const struct timeval *t)
{
    return (int64_t)t->tv_sec * 1000000 + t->tv_usec;
}

int main(void)
{
    int64_t children = 0, own = 0;
    clock_t ticks = 0;
    int status;

    for (int i = 0; i < CHILDREN; i++) {
        struct rusage used, all, mine;
        struct tms now;
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            int64_t before = 0;
            uint64_t x = 1;
            for (int step = 0; step < 20; step++) {
                x = guest_work(x, 40000);
                CHECK(getrusage(RUSAGE_SELF, &mine) == 0 && us(&mine.ru_utime) >= before);
                CHECK(getrusage(RUSAGE_CHILDREN, &all) == 0 && us(&all.ru_utime) < 100000);
                before = us(&mine.ru_utime);
                guest_pause_us(500);
            }
            _exit(x == 0);
        }
        CHECK(wait4(pid, &status, 0, &used) == pid && status == 0 && us(&used.ru_utime) >= 0);
        CHECK(getrusage(RUSAGE_CHILDREN, &all) == 0 && us(&all.ru_utime) + us(&all.ru_stime) >= children);
        CHECK(getrusage(RUSAGE_SELF, &mine) == 0 && us(&mine.ru_utime) >= own);
        CHECK(times(&now) != (clock_t)-1 && now.tms_cutime >= ticks);
        children = us(&all.ru_utime) + us(&all.ru_stime);
        own = us(&mine.ru_utime);
        ticks = now.tms_cutime;
    }
    return guest_ok();
}
