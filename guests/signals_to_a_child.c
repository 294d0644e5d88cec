// Shows: signals that a program queues for another process: the child counts every one of them.
// Breaks if: a signal to another process is sent again, or not at all, when the primary dies in the call.
#include "guest.h"
#include <signal.h>
#include <sys/wait.h>

enum { SIGNALS = 300 };

static void count_them(int report)
{
    sigset_t set;
    siginfo_t info;
    long sum = 0;

    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    for (int n = 0; n < SIGNALS; n++) {
        CHECK(sigwaitinfo(&set, &info) == SIGRTMIN);
        sum += info.si_value.sival_int;
    }
    CHECK(write(report, &sum, sizeof sum) == sizeof sum);
    _exit(0);
}

int main(void)
{
    int ends[2];
    long sum = 0, want = 0;
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0 && pipe(ends) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        count_them(ends[1]);
    CHECK(close(ends[1]) == 0);
    for (int n = 0; n < SIGNALS; n++) {
        CHECK(sigqueue(child, SIGRTMIN, (union sigval){ .sival_int = n }) == 0);
        want += n;
        if (n % 4 == 0)
            guest_pause_us(200);
    }
    guest_read_all(ends[0], &sum, sizeof sum);
    CHECK(sum == want);
    /* A child does not follow a failover: its parent is then another process. */
    CHECK(waitpid(child, NULL, 0) == child || errno == ECHILD);
    printf("sum %ld\n", sum);
    return guest_ok();
}
