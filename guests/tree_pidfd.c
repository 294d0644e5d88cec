// Shows: a parent holds pidfds of its children: polls them while the children work, signals through them, and waits by them.
// Breaks if: a pidfd says that a child has ended whose other copy goes on, or never says it.
// kit: tree
// kit: no-kill a descriptor of a process is the kernel's: it tells the death of the first primary
#include "guest.h"
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { CHILDREN = 3, ROUNDS = 120 };

static volatile sig_atomic_t heard;

static void on_signal(int signal)
{
    (void)signal;
    heard++;
}

static void child(int me, const sigset_t *open, int out)
{
    for (int r = 1; r <= ROUNDS; r++) {
        long told[2] = { me, r };
        while (heard < r)
            sigsuspend(open);
        guest_write_all(out, told, sizeof told);
    }
    _exit(70 + me);
}

int main(void)
{
    struct sigaction act = { .sa_handler = on_signal };
    struct pollfd fds[CHILDREN];
    int ends[2], left = CHILDREN;
    sigset_t block, open;
    siginfo_t info;

    sigemptyset(&block);
    sigaddset(&block, SIGUSR1);
    CHECK(sigaction(SIGUSR1, &act, NULL) == 0 && sigprocmask(SIG_BLOCK, &block, &open) == 0 && pipe(ends) == 0);
    for (int c = 0; c < CHILDREN; c++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
            child(c, &open, ends[1]);
        fds[c] = (struct pollfd){ .fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN };
        CHECK(fds[c].fd >= 0);
    }
    for (long r = 1; r <= ROUNDS; r++) {
        CHECK(poll(fds, CHILDREN, 2) == 0);
        for (int c = 0; c < CHILDREN; c++)
            CHECK(syscall(SYS_pidfd_send_signal, fds[c].fd, SIGUSR1, NULL, 0) == 0);
        for (int c = 0; c < CHILDREN; c++) {
            long told[2];
            guest_read_all(ends[0], told, sizeof told);
            CHECK(told[1] == r);
        }
    }
    while (left > 0) {
        CHECK(poll(fds, CHILDREN, -1) > 0);
        for (int c = 0; c < CHILDREN; c++) {
            if (!(fds[c].revents & POLLIN))
                continue;
            CHECK(waitid(P_PIDFD, (id_t)fds[c].fd, &info, WEXITED | WNOHANG) == 0);
            CHECK(info.si_code == CLD_EXITED && info.si_status == 70 + c);
            CHECK(syscall(SYS_pidfd_send_signal, fds[c].fd, 0, NULL, 0) == -1 && errno == ESRCH);
            CHECK(close(fds[c].fd) == 0);
            fds[c].fd = -1;
            fds[c].revents = 0;
            left--;
        }
    }
    printf("rounds %d\n", ROUNDS);
    return guest_ok();
}
