// Shows: a process makes a process group of its own, as an interactive shell does, signals it by its number, and stays in it.
// Breaks if: the copy that takes over is in the group that its first standby was made in.
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

    CHECK(sigaction(SIGUSR1, &act, NULL) == 0);
    if (getsid(0) != group)
        CHECK(setpgid(0, 0) == 0);
    for (int r = 1; r <= ROUNDS; r++) {
        CHECK(getpgrp() == group && getpgid(0) == group && getpgid(group) == group);
        CHECK(kill(-group, SIGUSR1) == 0 && heard == 2 * r - 1);
        CHECK(kill(0, SIGUSR1) == 0 && heard == 2 * r);
        guest_pause_us(1500);
    }
    printf("heard %d\n", (int)heard);
    return guest_ok();
}
