// Shows: a process makes a process group of its own, as an interactive shell does, signals it by its number, and stays in it.
// Breaks if: the copy that takes over is in the group that its first standby was made in, or a signal of its own is lost on its way
//            to it, comes twice, or comes behind the call that sent it.
// kit: no-checkpoint the process group that it began in is gone
#include "guest.h"
#include <signal.h>

enum { ROUNDS = 120 };

static volatile sig_atomic_t heard;

static void on_signal(int signal)
{
    (void)signal;
    heard++;
}

int main(void)
{
    struct sigaction act = { .sa_handler = on_signal };
    pid_t group = getpid();
    sigset_t block;

    CHECK(sigaction(SIGUSR1, &act, NULL) == 0);
    CHECK(sigemptyset(&block) == 0 && sigaddset(&block, SIGUSR1) == 0);
    if (getsid(0) != group)
        CHECK(setpgid(0, 0) == 0);
    for (int r = 1; r <= ROUNDS; r++) {
        CHECK(getpgrp() == group && getpgid(0) == group && getpgid(group) == group);
        CHECK(kill(-group, SIGUSR1) == 0 && heard == 3 * r - 2);
        CHECK(kill(0, SIGUSR1) == 0 && heard == 3 * r - 1);
        /* Blocked, it waits, whatever comes meanwhile. */
        CHECK(sigprocmask(SIG_BLOCK, &block, NULL) == 0);
        CHECK(kill(r % 2 ? 0 : -group, SIGUSR1) == 0 && heard == 3 * r - 1);
        guest_pause_us(1500);
        CHECK(sigprocmask(SIG_UNBLOCK, &block, NULL) == 0 && heard == 3 * r);
    }
    printf("heard %d\n", (int)heard);
    return guest_ok();
}
