// Shows: PR_SET_PDEATHSIG: a grandchild hears by a signal that its parent has ended, not before; its name by PR_SET_NAME stays.
// Breaks if: the death of a parent's primary, whose other copy goes on, is told as the parent's death.
// kit: tree
#include "guest.h"
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { ROUNDS = 150 };

static volatile sig_atomic_t told;

static void on_death(int signal)
{
    (void)signal;
    told++;
}

static void grandchild(int in, int out)
{
    struct sigaction act = { .sa_handler = on_death };
    sigset_t block, before;
    char name[16];
    long n = -1;

    sigemptyset(&block);
    sigaddset(&block, SIGUSR1);
    CHECK(sigaction(SIGUSR1, &act, NULL) == 0 && sigprocmask(SIG_BLOCK, &block, &before) == 0);
    CHECK(prctl(PR_SET_PDEATHSIG, SIGUSR1) == 0 && prctl(PR_SET_NAME, "worker") == 0);
    guest_write_all(out, &n, sizeof n);
    for (int r = 0; r < ROUNDS; r++) {
        sigset_t waits;
        int signal = 0;
        guest_read_all(in, &n, sizeof n);
        CHECK(prctl(PR_GET_PDEATHSIG, &signal) == 0 && signal == SIGUSR1);
        CHECK(prctl(PR_GET_NAME, name) == 0 && strcmp(name, "worker") == 0);
        CHECK(sigpending(&waits) == 0 && !sigismember(&waits, SIGUSR1));
        guest_write_all(out, &n, sizeof n);
    }
    while (!told)
        FAILS(sigsuspend(&before), EINTR);
    n = 1000;
    guest_write_all(out, &n, sizeof n);
    _exit(0);
}

int main(void)
{
    int down[2], up[2], status;
    long n;

    CHECK(pipe(down) == 0 && pipe(up) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        pid_t grand = fork();
        CHECK(grand >= 0);
        if (grand == 0) {
            CHECK(close(up[0]) == 0 && close(down[1]) == 0);
            grandchild(down[0], up[1]);
        }
        CHECK(close(up[1]) == 0 && close(down[0]) == 0);
        guest_read_all(up[0], &n, sizeof n);
        CHECK(n == -1);
        for (long r = 0; r < ROUNDS; r++) {
            guest_write_all(down[1], &r, sizeof r);
            guest_read_all(up[0], &n, sizeof n);
            CHECK(n == r);
            guest_pause_us(2000);
        }
        _exit(9);
    }
    CHECK(close(up[1]) == 0 && close(down[0]) == 0 && close(down[1]) == 0);
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 9);
    guest_read_all(up[0], &n, sizeof n);
    CHECK(n == 1000 && read(up[0], &n, sizeof n) == 0);
    return guest_ok();
}
