// Shows: a server's loop with pselect: SIGCHLD and SIGALRM only get through while it waits, handlers set flags, children answer by pipes.
// Breaks if: a signal is delivered outside the wait, or one that came just before it does not end it.
// kit: tree
#include "guest.h"
#include <signal.h>
#include <sys/select.h>
#include <sys/time.h>
#include <sys/wait.h>

enum { ENDS = 20, TICKS = 20 };

static volatile sig_atomic_t child_flag, ticks, waiting;

static void on_child(int signal)
{
    (void)signal;
    CHECK(waiting);
    child_flag = 1;
}

static void on_alarm(int signal)
{
    (void)signal;
    CHECK(waiting);
    ticks++;
}

int main(void)
{
    struct sigaction a = { .sa_handler = on_child }, b = { .sa_handler = on_alarm };
    struct itimerval every = { { 0, 9000 }, { 0, 9000 } }, never = { { 0, 0 }, { 0, 0 } };
    sigset_t block, open;
    int ends[2], ended = 0, running = 0, status, started = 0;
    long sum = 0;

    sigemptyset(&block);
    sigaddset(&block, SIGCHLD);
    sigaddset(&block, SIGALRM);
    CHECK(sigprocmask(SIG_BLOCK, &block, &open) == 0 && sigaction(SIGCHLD, &a, NULL) == 0);
    CHECK(sigaction(SIGALRM, &b, NULL) == 0 && pipe2(ends, O_CLOEXEC) == 0 && setitimer(ITIMER_REAL, &every, NULL) == 0);
    while (ended < ENDS || ticks < TICKS || sum < ENDS * (ENDS - 1) / 2) {
        fd_set set;
        while (running < 2 && started < ENDS) {
            pid_t pid = fork();
            CHECK(pid >= 0);
            if (pid == 0) {
                long number = started;
                guest_pause_us(15000);
                guest_write_all(ends[1], &number, sizeof number);
                _exit(5);
            }
            started++;
            running++;
        }
        FD_ZERO(&set);
        FD_SET(ends[0], &set);
        waiting = 1;
        int n = pselect(ends[0] + 1, &set, NULL, NULL, NULL, &open);
        waiting = 0;
        CHECK(n == 1 || (n < 0 && errno == EINTR));
        if (n == 1) {
            long number;
            guest_read_all(ends[0], &number, sizeof number);
            sum += number;
        }
        if (child_flag) {
            child_flag = 0;
            while (waitpid(-1, &status, WNOHANG) > 0) {
                CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 5);
                ended++;
                running--;
            }
        }
    }
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    printf("ended %d sum %ld\n", ended, sum);
    return guest_ok();
}
