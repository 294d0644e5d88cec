// Shows: a supervisor's loop: SIGCHLD by a signalfd in an epoll set, with a timer and a pipe; every child's end is found, and another started.
// Breaks if: the signal of an end is lost between the kernel, the set and the promoted copy, and the loop waits for ever.
// kit: tree
#include "guest.h"
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

enum { CHILDREN = 3, ENDS = 24 };

static int out;

static void start(long number)
{
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (pid == 0) {
        guest_pause_us(20000 + 3000 * (number % 5));
        guest_write_all(out, &number, sizeof number);
        _exit((int)(number % 100));
    }
}

int main(void)
{
    struct epoll_event want = { .events = EPOLLIN }, got;
    int pipe_ends[2], set = epoll_create1(EPOLL_CLOEXEC), ended = 0, status;
    long started = 0, sum = 0, codes = 0, messages = 0;
    sigset_t mask;

    sigemptyset(&mask);
    sigaddset(&mask, SIGCHLD);
    CHECK(sigprocmask(SIG_BLOCK, &mask, NULL) == 0);
    int signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    CHECK(signals >= 0 && set >= 0 && pipe2(pipe_ends, O_CLOEXEC) == 0);
    out = pipe_ends[1];
    want.data.fd = signals;
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, signals, &want) == 0);
    want.data.fd = pipe_ends[0];
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, pipe_ends[0], &want) == 0);
    for (int i = 0; i < CHILDREN; i++)
        start(started++);
    while (ended < ENDS || messages < ENDS) {
        struct signalfd_siginfo info;
        long number;
        pid_t pid;
        int n = epoll_wait(set, &got, 1, 20000);
        CHECK(n == 1 || (n < 0 && errno == EINTR));
        if (n < 0)
            continue;
        if (got.data.fd == pipe_ends[0]) {
            guest_read_all(pipe_ends[0], &number, sizeof number);
            sum += number;
            messages++;
            continue;
        }
        if (read(signals, &info, sizeof info) < 0) {
            CHECK(errno == EAGAIN);
            continue;
        }
        CHECK(info.ssi_signo == SIGCHLD);
        while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
            CHECK(WIFEXITED(status));
            codes += WEXITSTATUS(status);
            ended++;
            if (started < ENDS)
                start(started++);
        }
    }
    FAILS(waitpid(-1, &status, WNOHANG), ECHILD);
    CHECK(sum == ENDS * (ENDS - 1) / 2 && codes == sum);
    printf("ended %d sum %ld\n", ended, sum);
    return guest_ok();
}
