// Shows: a parent signals its child by the pid that fork returned, the child signals getppid(), in strict turns.
// Breaks if: a signal goes to a dead copy, to the standby, or to both, once either side goes on in its other copy.
// kit: tree
#include "guest.h"
#include <signal.h>
#include <sys/wait.h>

enum { ROUNDS = 250 };

static volatile sig_atomic_t heard;

static void on_signal(int signal)
{
    (void)signal;
    heard++;
}

/* Waits for the next signal, and that it was one. */
static void hear(const sigset_t *open, int count)
{
    while (heard < count)
        CHECK(sigsuspend(open) == -1 && errno == EINTR);
    CHECK(heard == count);
}

static void child(const sigset_t *open, int out)
{
    pid_t parent = getppid();

    for (int r = 1; r <= ROUNDS; r++) {
        hear(open, r);
        CHECK(getppid() == parent);
        guest_write_all(out, &r, sizeof r);
        CHECK(kill(getppid(), SIGUSR2) == 0);
    }
    _exit(heard == ROUNDS ? 0 : 1);
}

int main(void)
{
    struct sigaction act = { .sa_handler = on_signal };
    sigset_t block, open;
    int ends[2], status, told;

    sigemptyset(&block);
    sigaddset(&block, SIGUSR1);
    sigaddset(&block, SIGUSR2);
    CHECK(sigprocmask(SIG_BLOCK, &block, &open) == 0 && pipe(ends) == 0);
    CHECK(sigaction(SIGUSR1, &act, NULL) == 0 && sigaction(SIGUSR2, &act, NULL) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        child(&open, ends[1]);
    for (int r = 1; r <= ROUNDS; r++) {
        CHECK(kill(pid, SIGUSR1) == 0);
        guest_read_all(ends[0], &told, sizeof told);
        CHECK(told == r);
        hear(&open, r);
        guest_pause_us(1500);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    FAILS(kill(pid, SIGUSR1), ESRCH);
    printf("rounds %d\n", ROUNDS);
    return guest_ok();
}
