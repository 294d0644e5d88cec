// Shows: waitid looks at an end and leaves it there (WNOWAIT), finds children by pid, pidfd and group, and tells who and how.
// Breaks if: an end that was looked at is gone, or is told again after it was taken.
// kit: tree
#include "guest.h"
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { ROUNDS = 25 };

static void child(int r, int go)
{
    char byte;

    guest_read_all(go, &byte, 1);
    for (int s = 0; s < 10; s++)
        guest_pause_us(1800);
    if (r % 3 == 2)
        raise(SIGUSR2);
    _exit(r + 1);
}

static void check(const siginfo_t *info, int r, pid_t pid)
{
    CHECK(info->si_signo == SIGCHLD && info->si_pid == pid && info->si_uid == getuid());
    if (r % 3 == 2)
        CHECK(info->si_code == CLD_KILLED && info->si_status == SIGUSR2);
    else
        CHECK(info->si_code == CLD_EXITED && info->si_status == r + 1);
}

int main(void)
{
    long sum = 0;
    int go[2];

    CHECK(pipe(go) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        siginfo_t info = { 0 };
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
            child(r, go[0]);
        int fd = (int)syscall(SYS_pidfd_open, pid, 0);
        CHECK(fd >= 0);
        CHECK(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0);
        guest_write_all(go[1], "g", 1);
        CHECK(waitid(P_ALL, 0, &info, WEXITED | WNOWAIT) == 0);
        check(&info, r, pid);
        memset(&info, 0, sizeof info);
        CHECK(waitid(P_PIDFD, (id_t)fd, &info, WEXITED | WNOWAIT) == 0);
        check(&info, r, pid);
        memset(&info, 0, sizeof info);
        switch (r % 3) {
        case 0:
            CHECK(waitid(P_PID, (id_t)pid, &info, WEXITED) == 0);
            break;
        case 1:
            CHECK(waitid(P_PGID, (id_t)getpgrp(), &info, WEXITED) == 0);
            break;
        default:
            CHECK(waitid(P_PIDFD, (id_t)fd, &info, WEXITED) == 0);
        }
        check(&info, r, pid);
        sum += info.si_status;
        FAILS(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG), ECHILD);
        FAILS(waitid(P_ALL, 0, &info, WEXITED), ECHILD);
        CHECK(close(fd) == 0);
    }
    printf("sum %ld\n", sum);
    return guest_ok();
}
