// Shows: job control as a shell does it on a terminal: groups put to the front and back, a reader stopped by SIGTTIN, a key that stops, fg, bg.
// Breaks if: a stop by the terminal is not told, or a job that is let go on is another process than the one that was stopped.
// kit: tree
// kit: no-kill the leadership of a session ends with the process that made it
#include "guest.h"
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>

enum { ROUNDS = 12 };

static void job(void)
{
    char line[64];

    for (;;) {
        ssize_t got = read(0, line, sizeof line);
        CHECK(got > 0);
        if (line[0] == 'q')
            _exit(7);
    }
}

static int shell(int out)
{
    sigset_t block, before;
    int status, ready[2];
    char byte;

    sigemptyset(&block);
    sigaddset(&block, SIGTTOU);
    CHECK(sigprocmask(SIG_BLOCK, &block, &before) == 0);
    for (long r = 0; r < ROUNDS; r++) {
        CHECK(pipe(ready) == 0);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            CHECK(setpgid(0, 0) == 0 && sigprocmask(SIG_SETMASK, &before, NULL) == 0);
            CHECK(write(ready[1], "r", 1) == 1);
            guest_pause_us(12000);
            job();
        }
        guest_read_all(ready[0], &byte, 1);
        CHECK(close(ready[0]) == 0 && close(ready[1]) == 0 && getpgid(pid) == pid);
        /* In the background its read stops it. */
        CHECK(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status) && WSTOPSIG(status) == SIGTTIN);
        CHECK(tcsetpgrp(0, pid) == 0 && tcgetpgrp(0) == pid && kill(-pid, SIGCONT) == 0);
        CHECK(waitpid(pid, &status, WCONTINUED) == pid && WIFCONTINUED(status));
        guest_write_all(out, &r, sizeof r);
        /* The parent types the key that stops it. */
        CHECK(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status) && WSTOPSIG(status) == SIGTSTP);
        CHECK(tcsetpgrp(0, getpgrp()) == 0 && kill(pid, 0) == 0);
        CHECK(tcsetpgrp(0, pid) == 0 && kill(-pid, SIGCONT) == 0);
        guest_write_all(out, &r, sizeof r);
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
        CHECK(tcsetpgrp(0, getpgrp()) == 0);
    }
    return 5;
}

int main(void)
{
    int master, ends[2], status;
    long n;

    CHECK(pipe(ends) == 0);
    pid_t pid = forkpty(&master, NULL, NULL, NULL);
    CHECK(pid >= 0);
    if (pid == 0)
        _exit(shell(ends[1]));
    CHECK(close(ends[1]) == 0);
    for (long r = 0; r < ROUNDS; r++) {
        guest_read_all(ends[0], &n, sizeof n);
        CHECK(n == r);
        guest_write_all(master, "hello\n\x1a", 7);
        guest_read_all(ends[0], &n, sizeof n);
        CHECK(n == r);
        guest_write_all(master, "q\n", 2);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 5);
    CHECK(close(master) == 0);
    printf("rounds %d\n", ROUNDS);
    return guest_ok();
}
