// Shows: a pseudo-terminal by itself: lines and their editing, echo, raw bytes, VMIN and VTIME, the end-of-file key, sizes, what waits in it, hang-up.
// Breaks if: a terminal's modes are set by one copy only, or a line that the dead primary had read is read again.
#include "guest.h"
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <termios.h>

enum { ROUNDS = 40 };

static void put(int fd, const char *text)
{
    guest_write_all(fd, text, strlen(text));
}

static void get(int fd, const char *wanted)
{
    char text[256];
    size_t length = strlen(wanted);

    guest_read_all(fd, text, length);
    CHECK(memcmp(text, wanted, length) == 0);
}

/* What is written at one end comes to the other's queue a moment later. */
static void until_queued(int fd, int wanted)
{
    for (int queued = -1; queued != wanted; sched_yield())
        CHECK(ioctl(fd, FIONREAD, &queued) == 0 && queued <= wanted);
}

int main(void)
{
    char text[64];

    for (int r = 0; r < ROUNDS; r++) {
        struct winsize size = { (unsigned short)(20 + r), 80, 0, 0 }, told;
        struct termios modes, raw;
        int master, slave;
        CHECK(openpty(&master, &slave, NULL, NULL, &size) == 0 && isatty(slave) && tcgetattr(slave, &modes) == 0);
        CHECK(ioctl(master, TIOCGWINSZ, &told) == 0 && told.ws_row == 20 + r && told.ws_col == 80);
        CHECK((modes.c_lflag & (ICANON | ECHO)) == (ICANON | ECHO));
        put(master, "cat\x7fr\n");
        get(master, "cat\b \br\r\n");
        CHECK(read(slave, text, sizeof text) == 4 && memcmp(text, "car\n", 4) == 0);
        modes.c_lflag &= ~(tcflag_t)ECHO;
        CHECK(tcsetattr(slave, TCSADRAIN, &modes) == 0);
        put(master, "half\x04\x04");
        CHECK(read(slave, text, sizeof text) == 4 && read(slave, text, sizeof text) == 0);
        put(slave, "a\nb\n");
        get(master, "a\r\nb\r\n");

        raw = modes;
        cfmakeraw(&raw);
        raw.c_cc[VMIN] = 3;
        raw.c_cc[VTIME] = 0;
        CHECK(tcsetattr(slave, TCSANOW, &raw) == 0);
        put(master, "\x03\x7f");
        until_queued(slave, 2);
        put(master, "\x04");
        CHECK(read(slave, text, sizeof text) == 3 && memcmp(text, "\x03\x7f\x04", 3) == 0);
        put(slave, "a\nb\n");
        get(master, "a\nb\n");
        put(master, "thrown away");
        until_queued(slave, 11);
        CHECK(tcflush(slave, TCIFLUSH) == 0);
        raw.c_cc[VMIN] = 0;
        CHECK(tcsetattr(slave, TCSANOW, &raw) == 0 && read(slave, text, sizeof text) == 0);
        size.ws_col = 132;
        CHECK(ioctl(slave, TIOCSWINSZ, &size) == 0 && ioctl(master, TIOCGWINSZ, &told) == 0 && told.ws_col == 132);
        CHECK(close(slave) == 0);
        struct pollfd gone = { master, POLLIN, 0 };
        CHECK(poll(&gone, 1, -1) == 1 && (gone.revents & POLLHUP));
        FAILS(read(master, text, sizeof text), EIO);
        CHECK(close(master) == 0);
        guest_pause_us(1000);
    }
    return guest_ok();
}
