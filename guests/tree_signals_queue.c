// Shows: queued signals with values go both ways between parent and child; sigwaitinfo and sigtimedwait take them in order.
// Breaks if: a value is lost with the process that waited for it, is told twice, or comes out of order.
// kit: tree
#include "guest.h"
#include <signal.h>
#include <sys/wait.h>

enum { ROUNDS = 200, BURST = 3 };

static void send_value(pid_t to, int value)
{
    CHECK(sigqueue(to, SIGRTMIN + 1, (union sigval){ .sival_int = value }) == 0);
}

static int take(const sigset_t *set, int r)
{
    struct timespec long_enough = { 30, 0 };
    siginfo_t info = { 0 };

    if (r % 2)
        CHECK(sigwaitinfo(set, &info) == SIGRTMIN + 1);
    else
        CHECK(sigtimedwait(set, &info, &long_enough) == SIGRTMIN + 1);
    CHECK(info.si_code == SI_QUEUE && info.si_uid == getuid());
    return info.si_value.sival_int;
}

int main(void)
{
    sigset_t set;
    int status;
    long sum = 0;

    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 1);
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    pid_t parent = getpid(), pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        for (int r = 0; r < ROUNDS; r++) {
            for (int b = 0; b < BURST; b++)
                CHECK(take(&set, r) == r * BURST + b);
            for (int b = 0; b < BURST; b++)
                send_value(parent, 100000 + r * BURST + b);
        }
        _exit(0);
    }
    for (int r = 0; r < ROUNDS; r++) {
        for (int b = 0; b < BURST; b++)
            send_value(pid, r * BURST + b);
        for (int b = 0; b < BURST; b++) {
            int value = take(&set, r);
            CHECK(value == 100000 + r * BURST + b);
            sum += value;
        }
        guest_pause_us(1500);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    printf("sum %ld\n", sum);
    return guest_ok();
}
