// Shows: a parent waits by a pidfd from the moment of the fork on: it is told how its child ended.
// Breaks if: a wait that begins before the child is listed is left to the kernel, which tells the death of the child's first primary.
// kit: tree
#include "guest.h"
#include <sys/syscall.h>
#include <sys/wait.h>

enum { ROUNDS = 4, BY_FD = 3 };

int main(void)
{
    for (int r = 0; r < ROUNDS; r++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            for (int pause = 0; pause < 10; pause++)
                guest_pause_us(8000);
            _exit(7 + r);
        }
        int fd = (int)syscall(SYS_pidfd_open, pid, 0);
        siginfo_t told = {0};
        CHECK(fd >= 0);
        CHECK(waitid((idtype_t)BY_FD, (id_t)fd, &told, WEXITED) == 0);
        CHECK(told.si_pid == pid && told.si_code == CLD_EXITED && told.si_status == 7 + r);
        CHECK(close(fd) == 0);
        CHECK(waitpid(pid, NULL, 0) == -1);
    }
    return guest_ok();
}
