// Shows: a shell on a terminal of its own (forkpty), driven as expect does: prompts, commands, an interrupted one, the size of its window, its end.
// Breaks if: what a terminal carries is lost or repeated, or its keys reach the wrong processes.
// kit: tree
// kit: no-kill the leadership of a session ends with the process that made it
#include "guest.h"
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>

enum { ROUNDS = 30 };

static int master;

static void expect(const char *wanted)
{
    char text[4096];
    size_t have = 0, length = strlen(wanted);

    while (have < length || memcmp(text + have - length, wanted, length) != 0) {
        CHECK(have < sizeof text);
        guest_read_all(master, text + have, 1);
        have++;
    }
}

static void say(const char *text)
{
    guest_write_all(master, text, strlen(text));
}

int main(void)
{
    struct winsize size = { 31, 97, 0, 0 };
    struct termios modes;
    char text[128], wanted[128];
    int status;

    pid_t pid = forkpty(&master, NULL, NULL, &size);
    CHECK(pid >= 0);
    if (pid == 0) {
        setenv("PS1", "ready> ", 1);
        unsetenv("ENV");
        execl("/bin/sh", "sh", "-i", (char *)NULL);
        _exit(99);
    }
    expect("ready> ");
    CHECK(tcgetattr(master, &modes) == 0);
    modes.c_lflag &= ~(tcflag_t)ECHO;
    CHECK(tcsetattr(master, TCSANOW, &modes) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        snprintf(text, sizeof text, "echo $((%d * 3))/$?\n", r);
        snprintf(wanted, sizeof wanted, "%d/0\r\n", r * 3);
        say(text);
        expect(wanted);
        expect("ready> ");
        guest_pause_us(5000);
    }
    say("stty size\n");
    expect("31 97\r\n");
    expect("ready> ");
    size.ws_row = 40;
    CHECK(ioctl(master, TIOCSWINSZ, &size) == 0);
    say("stty size; echo waits; sleep 100\n");
    expect("40 97\r\nwaits\r\n");
    /* A key that comes while the shell makes the process that it is meant for is lost: then it is pressed again. */
    struct pollfd answer = { .fd = master, .events = POLLIN };
    do {
        guest_pause_us(20000);
        say("\x03");
    } while (poll(&answer, 1, 500) == 0);
    expect("ready> ");
    say("exit 11\n");
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 11);
    CHECK(close(master) == 0);
    printf("rounds %d\n", ROUNDS);
    return guest_ok();
}
