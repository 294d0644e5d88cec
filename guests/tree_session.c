// Shows: a child leads a session of its own with a terminal: the parent types lines at the other end, at last the interrupt key.
// Breaks if: a session's leader that goes on in its other copy has lost its session, its terminal, or the key's signal.
// kit: tree
// kit: no-kill the leadership of a session ends with the process that made it
#include "guest.h"
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>

enum { ROUNDS = 250 };

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal)
{
    (void)signal;
    interrupted++;
}

static void child(const char *terminal, int out)
{
    sigset_t block, before;
    struct sigaction act = { .sa_handler = on_interrupt };
    char line[64];
    long n;

    CHECK(setsid() == getpid());
    int fd = open(terminal, O_RDWR);
    CHECK(fd >= 0);
    CHECK(ioctl(fd, TIOCSCTTY, 0) == 0 && tcgetsid(fd) == getpid());
    CHECK(tcsetpgrp(fd, getpgrp()) == 0 && sigaction(SIGINT, &act, NULL) == 0);
    sigemptyset(&block);
    sigaddset(&block, SIGINT);
    CHECK(sigprocmask(SIG_BLOCK, &block, &before) == 0);
    n = -1;
    guest_write_all(out, &n, sizeof n);
    for (long r = 0; r < ROUNDS; r++) {
        ssize_t got = read(fd, line, sizeof line - 1);
        CHECK(got > 0 && line[got - 1] == '\n');
        line[got] = 0;
        CHECK(sscanf(line, "line %ld\n", &n) == 1 && n == r);
        CHECK(getsid(0) == getpid() && getpgrp() == getpid() && tcgetpgrp(fd) == getpid());
        guest_write_all(out, &n, sizeof n);
    }
    while (!interrupted)
        FAILS(sigsuspend(&before), EINTR);
    CHECK(interrupted == 1);
    _exit(17);
}

int main(void)
{
    struct termios modes;
    int ends[2], status, master = posix_openpt(O_RDWR | O_NOCTTY);
    long n;

    CHECK(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0 && pipe(ends) == 0);
    CHECK(tcgetattr(master, &modes) == 0);
    modes.c_lflag &= ~(tcflag_t)ECHO;
    CHECK(tcsetattr(master, TCSANOW, &modes) == 0);
    const char *terminal = ptsname(master);
    CHECK(terminal);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        CHECK(close(master) == 0);
        child(terminal, ends[1]);
    }
    CHECK(close(ends[1]) == 0);
    guest_read_all(ends[0], &n, sizeof n);
    CHECK(n == -1 && getsid(pid) == pid && getsid(0) != pid);
    for (long r = 0; r < ROUNDS; r++) {
        char line[64];
        int length = snprintf(line, sizeof line, "line %ld\n", r);
        guest_write_all(master, line, (size_t)length);
        guest_read_all(ends[0], &n, sizeof n);
        CHECK(n == r);
        guest_pause_us(1300);
    }
    guest_write_all(master, "\x03", 1);
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 17);
    CHECK(close(master) == 0);
    printf("lines %d\n", ROUNDS);
    return guest_ok();
}
