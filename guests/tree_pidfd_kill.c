// Shows: a parent signals its children by descriptors of them, works with them, ends them by SIGKILL by the same descriptor, and
// waits by it.
// Breaks if: a signal by a descriptor goes to a copy: SIGKILL is followed by a failover, or a signal reaches nobody after one.
// kit: tree
#include "guest.h"
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { ROUNDS = 4, STEPS = 25, BY_FD = 3, WITH_FD = 0x1000 };

static volatile sig_atomic_t heard;

static void on_signal(int signal)
{
    (void)signal;
    heard++;
}

static void child(const sigset_t *open, int out)
{
    for (int step = 1;; step++) {
        while (heard < step)
            sigsuspend(open);
        guest_write_all(out, &step, sizeof step);
    }
}

static int send(int fd, int signal)
{
    return (int)syscall(SYS_pidfd_send_signal, fd, signal, NULL, 0);
}

int main(void)
{
    struct sigaction act = { .sa_handler = on_signal };
    sigset_t block, open;

    sigemptyset(&block);
    sigaddset(&block, SIGUSR1);
    CHECK(sigaction(SIGUSR1, &act, NULL) == 0 && sigprocmask(SIG_BLOCK, &block, &open) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        int ends[2], fd = -1, step;
        siginfo_t told = {0};
        CHECK(pipe(ends) == 0);
        long pid = r % 2 ? syscall(SYS_clone, WITH_FD | SIGCHLD, NULL, &fd, NULL, 0) : fork();
        CHECK(pid >= 0);
        if (pid == 0)
            child(&open, ends[1]);
        if (r % 2 == 0)
            fd = (int)syscall(SYS_pidfd_open, pid, 0);
        CHECK(fd >= 0);
        for (int s = 1; s <= STEPS; s++) {
            CHECK(send(fd, SIGUSR1) == 0);
            guest_read_all(ends[0], &step, sizeof step);
            CHECK(step == s);
            guest_pause_us(3000);
        }
        CHECK(send(fd, SIGKILL) == 0);
        CHECK(waitid((idtype_t)BY_FD, (id_t)fd, &told, WEXITED) == 0);
        CHECK(told.si_pid == pid && told.si_code == CLD_KILLED && told.si_status == SIGKILL);
        CHECK(send(fd, 0) == -1 && errno == ESRCH);
        CHECK(close(fd) == 0 && close(ends[0]) == 0 && close(ends[1]) == 0);
    }
    return guest_ok();
}
