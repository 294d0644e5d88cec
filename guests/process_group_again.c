// Shows: a process makes a process group of its own again and again, signals it, waits for a child in it, leaves it, and makes a
//        session in the end: each has the process's own number.
// Breaks if: the copy that has taken over makes a group or a session with another number than its program has.
// kit: no-checkpoint the process group that it began in is gone
#include "guest.h"
#include <signal.h>
#include <sys/wait.h>

enum { ROUNDS = 60 };

static volatile sig_atomic_t heard;

static void on_signal(int signal)
{
    (void)signal;
    heard++;
}

/* The exit status of a child that looks where it is. */
static int of_child(pid_t group)
{
    int status;
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0)
        _exit(getpgrp() == group && getpgid(getppid()) == group ? 7 : 1);
    /* Waited for as one of the group. */
    CHECK(waitpid(-group, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* A child is put into a group of its own by both, as shells do. */
static void lead_child(void)
{
    int status;
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        CHECK(setpgid(0, 0) == 0 && getpgrp() == getpid());
        pause();
        _exit(1);
    }
    CHECK(setpgid(child, child) == 0 && getpgid(child) == child);
    CHECK(kill(-child, SIGTERM) == 0);
    CHECK(waitpid(-child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}

int main(void)
{
    struct sigaction act = { .sa_handler = on_signal };
    pid_t own = getpid(), before = getpgrp();

    if (before == own) {
        /* It cannot leave its own group for good, nor make a session. */
        pid_t child = fork();
        int status;

        CHECK(child >= 0);
        if (child != 0) {
            CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
            return WEXITSTATUS(status);
        }
        own = getpid();
    }
    CHECK(sigaction(SIGUSR1, &act, NULL) == 0);
    for (int r = 1; r <= ROUNDS; r++) {
        CHECK(setpgid(0, r % 2 ? 0 : own) == 0);
        CHECK(getpgrp() == own && getpgid(0) == own && getpgid(own) == own);
        CHECK(kill(-own, SIGUSR1) == 0 && heard == 2 * r - 1);
        CHECK(killpg(0, SIGUSR1) == 0 && heard == 2 * r);
        if (r % 8 == 0)
            CHECK(of_child(own) == 7);
        if (r % 16 == 1)
            lead_child();
        guest_pause_us(1500);
        CHECK(setpgid(own, own) == 0 && getpgrp() == own);
        CHECK(setpgid(0, before) == 0 && getpgrp() == before);
        guest_pause_us(1500);
    }
    CHECK(setsid() == own && getsid(0) == own && getpgrp() == own);
    FAILS(setsid(), EPERM);
    printf("heard %d\n", (int)heard);
    return guest_ok();
}
