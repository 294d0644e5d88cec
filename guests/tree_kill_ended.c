// Shows: a child that has ended and that nobody has asked for takes signals still, until its parent asks.
// Breaks if: a parent that has failed over hears that there is no such process: the kernel's zombie went with its first copy.
// kit: tree
#include "guest.h"
#include <signal.h>
#include <sys/wait.h>

enum { ROUNDS = 40 };

int main(void)
{
    int status;

    pid_t stays = fork();
    CHECK(stays >= 0);
    if (stays == 0) {
        for (;;)
            guest_pause_us(2000);
    }
    guest_pause_us(60000);
    pid_t ended = fork();
    CHECK(ended >= 0);
    if (ended == 0)
        _exit(3);
    siginfo_t info;
    CHECK(waitid(P_PID, (id_t)ended, &info, WEXITED | WNOWAIT) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        CHECK(kill(ended, 0) == 0);
        CHECK(kill(ended, SIGTERM) == 0);
        guest_pause_us(10000);
    }
    CHECK(waitpid(ended, &status, 0) == ended && WIFEXITED(status) && WEXITSTATUS(status) == 3);
    FAILS(kill(ended, 0), ESRCH);
    CHECK(kill(stays, SIGTERM) == 0);
    CHECK(waitpid(stays, &status, 0) == stays && WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    return guest_ok();
}
