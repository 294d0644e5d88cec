// Shows: a process group whose leader has ended and been waited for: its other members go on in it, under its number, and are
//        signalled and waited for by that.
// Breaks if: only the leader could tell which group its relatives mean, once the kernel has given it another number.
// kit: tree
#include "guest.h"
#include <signal.h>
#include <sys/wait.h>

enum { ROUNDS = 90, ALONE_US = 60000 };

static void on_signal(int signal)
{
    (void)signal;
}

/* Answers each signal until it is ended, and says in which group it is. */
static void member(pid_t group, const sigset_t *open, int out)
{
    CHECK(setpgid(0, group) == 0);
    for (long n = 1;; n++) {
        sigsuspend(open);
        CHECK(getpgrp() == group);
        guest_write_all(out, &n, sizeof n);
    }
}

int main(void)
{
    struct sigaction act = { .sa_handler = on_signal };
    sigset_t block, open;
    int ends[2], status;
    long told;

    sigemptyset(&block);
    sigaddset(&block, SIGUSR1);
    CHECK(sigaction(SIGUSR1, &act, NULL) == 0 && sigprocmask(SIG_BLOCK, &block, &open) == 0 && pipe(ends) == 0);
    pid_t leader = fork();
    CHECK(leader >= 0);
    if (leader == 0) {
        CHECK(setpgid(0, 0) == 0);
        for (;;)
            pause();
    }
    CHECK(setpgid(leader, leader) == 0);
    /* Alone in its group: whoever goes on in its other copy makes that anew. */
    guest_pause_us(ALONE_US);
    pid_t other = fork();
    CHECK(other >= 0);
    if (other == 0)
        member(leader, &open, ends[1]);
    CHECK(setpgid(other, leader) == 0);
    for (long r = 1; r <= ROUNDS; r++) {
        if (r == ROUNDS / 2)
            CHECK(kill(leader, SIGKILL) == 0 && waitpid(leader, &status, 0) == leader && WIFSIGNALED(status));
        CHECK(getpgid(other) == leader);
        CHECK(r < ROUNDS / 2 ? kill(other, SIGUSR1) == 0 : kill(-leader, SIGUSR1) == 0);
        guest_read_all(ends[0], &told, sizeof told);
        CHECK(told == r && waitpid(-leader, &status, WNOHANG) == 0);
        guest_pause_us(2000);
    }
    CHECK(kill(-leader, SIGTERM) == 0);
    CHECK(waitpid(-leader, &status, 0) == other && WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    printf("heard %d\n", ROUNDS);
    return guest_ok();
}
