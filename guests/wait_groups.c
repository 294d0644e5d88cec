// Shows: several threads each make a child that leads a process group or a session of its own, let it end, and wait for that group;
//        a group whose only process has ended and is not waited for can be sent a signal; the end and a stop tell the child's user.
// Breaks if: of a child that has ended, and is no child of the kernel's any more, nobody knows the group: a wait finds another's, and
//            each thread misses its own.
#include "guest.h"
#include <signal.h>
#include <sys/wait.h>

enum { THREADS = 4, ROUNDS = 6, PAUSE_US = 30000, NOBODY = 65534 };

static int is_root;

/* Makes a child that leads a group, or a session, and ends with this status. */
static pid_t lead(int of_session, int status)
{
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        if (of_session ? setsid() < 0 : setpgid(0, 0) < 0)
            _exit(90);
        if (is_root && setuid(NOBODY) < 0)
            _exit(91);
        _exit(status);
    }
    return child;
}

static void *work(void *arg)
{
    int own = (int)guest_num(arg), round, status;
    siginfo_t told;
    pid_t child;

    for (round = 0; round < ROUNDS; round++) {
        child = lead(round % 2, own * ROUNDS + round);
        while (getpgid(child) != child)
            guest_pause_us(500);
        guest_pause_us(PAUSE_US);
        told.si_pid = 0;
        CHECK(waitid(P_PGID, child, &told, WEXITED | WNOWAIT) == 0);
        CHECK(told.si_pid == child && told.si_code == CLD_EXITED && told.si_status == own * ROUNDS + round);
        CHECK(told.si_uid == (is_root ? NOBODY : getuid()));
        CHECK(kill(child, 0) == 0 && kill(-child, 0) == 0);
        CHECK(getpgid(child) == child && getsid(child) == (round % 2 ? child : getsid(0)));
        CHECK(waitpid(-child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == own * ROUNDS + round);
        CHECK(waitpid(-child, &status, WNOHANG) == -1);
    }
    return NULL;
}

int main(void)
{
    is_root = getuid() == 0;
    guest_run(work, THREADS);
    FAILS(waitpid(-1, NULL, 0), ECHILD);
    printf("children %d\n", THREADS * ROUNDS);
    return guest_ok();
}
