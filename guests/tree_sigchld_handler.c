// Shows: a SIGCHLD handler with SA_SIGINFO reaps whatever has ended, while main works; each child is told of once.
// Breaks if: the signal of a child's end is lost, comes for a copy's death, or names a pid that the program never saw.
#include "guest.h"
#include <signal.h>
#include <sys/wait.h>

enum { CHILDREN = 60 };

static struct child {
    volatile pid_t pid;
    volatile int status;
    volatile int times;
} children[CHILDREN];
static volatile sig_atomic_t reaped, told;

static int find(pid_t pid)
{
    for (int c = 0; c < CHILDREN; c++)
        if (children[c].pid == pid)
            return c;
    return -1;
}

static void on_end(int signal, siginfo_t *info, void *context)
{
    int before = errno, status;

    (void)context;
    CHECK(signal == SIGCHLD && info->si_code == CLD_EXITED);
    int first = find(info->si_pid);
    CHECK(first >= 0 && info->si_status == first + 10);
    told++;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        int c = find(pid);
        CHECK(c >= 0);
        children[c].status = status;
        children[c].times++;
        reaped++;
    }
    errno = before;
}

int main(void)
{
    struct sigaction act = { .sa_flags = SA_SIGINFO | SA_RESTART };
    sigset_t chld, before;
    long sum = 0;

    act.sa_sigaction = on_end;
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    CHECK(sigaction(SIGCHLD, &act, NULL) == 0);
    for (int c = 0; c < CHILDREN; c++) {
        /* No end is told of before its pid is in the table. */
        CHECK(sigprocmask(SIG_BLOCK, &chld, &before) == 0);
        children[c].pid = fork();
        CHECK(children[c].pid >= 0);
        if (children[c].pid == 0) {
            for (int s = 0; s < c % 7 * 4; s++)
                guest_pause_us(2000);
            _exit(c + 10);
        }
        CHECK(sigprocmask(SIG_SETMASK, &before, NULL) == 0);
        guest_pause_us(8000);
    }
    CHECK(sigprocmask(SIG_BLOCK, &chld, &before) == 0);
    while (reaped < CHILDREN)
        sigsuspend(&before);
    CHECK(told >= 1 && told <= CHILDREN);
    for (int c = 0; c < CHILDREN; c++) {
        CHECK(children[c].times == 1 && WIFEXITED(children[c].status));
        CHECK(WEXITSTATUS(children[c].status) == c + 10);
        sum += WEXITSTATUS(children[c].status);
    }
    FAILS(waitpid(-1, NULL, 0), ECHILD);
    printf("sum %ld\n", sum);
    return guest_ok();
}
