// Shows: children in a process group of their own: the parent signals the group, all answer, and it waits for the group only.
// Breaks if: a member that goes on in its other copy has left its group, or a signal to the group counts for a standby too.
#include "guest.h"
#include <signal.h>
#include <sys/wait.h>

enum { CHILDREN = 3, ROUNDS = 150 };

static volatile sig_atomic_t heard;

static void on_signal(int signal)
{
    (void)signal;
    heard++;
}

static void child(int me, const sigset_t *open, int out, pid_t group)
{
    long told[2] = { me, 0 };

    CHECK(getpgrp() == (group ? group : getpid()));
    while (heard < ROUNDS) {
        sigsuspend(open);
        told[1] = heard;
        guest_write_all(out, told, sizeof told);
    }
    CHECK(getpgrp() == (group ? group : getpid()));
    for (;;)
        sigsuspend(open);
}

int main(void)
{
    struct sigaction act = { .sa_handler = on_signal };
    sigset_t block, open;
    int ends[2], status;
    pid_t group = 0;

    sigemptyset(&block);
    sigaddset(&block, SIGUSR1);
    CHECK(sigaction(SIGUSR1, &act, NULL) == 0 && sigprocmask(SIG_BLOCK, &block, &open) == 0 && pipe(ends) == 0);
    for (int c = 0; c < CHILDREN; c++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            CHECK(setpgid(0, group) == 0);
            child(c, &open, ends[1], group);
        }
        /* As shells do: both sides, whoever comes first. */
        CHECK(setpgid(pid, group) == 0);
        if (!group)
            group = pid;
        CHECK(getpgid(pid) == group);
    }
    for (long r = 1; r <= ROUNDS; r++) {
        int seen = 0;
        CHECK(kill(-group, SIGUSR1) == 0);
        for (int c = 0; c < CHILDREN; c++) {
            long told[2];
            guest_read_all(ends[0], told, sizeof told);
            CHECK(told[1] == r && !(seen & 1 << told[0]));
            seen |= 1 << told[0];
        }
        CHECK(waitpid(-group, &status, WNOHANG) == 0);
        guest_pause_us(2000);
    }
    FAILS(waitpid(0, &status, WNOHANG), ECHILD);
    CHECK(kill(-group, SIGTERM) == 0);
    for (int c = 0; c < CHILDREN; c++)
        CHECK(waitpid(-group, &status, 0) > 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    FAILS(waitpid(-group, &status, 0), ECHILD);
    FAILS(kill(-group, 0), ESRCH);
    printf("heard %d\n", CHILDREN * ROUNDS);
    return guest_ok();
}
