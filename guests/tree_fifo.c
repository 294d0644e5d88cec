// Shows: two named pipes between parent and child, opened anew in each round, so that both ends wait for each other and see the end of file.
// Breaks if: an open that waits is lost with its process, or a copy keeps an end open and the reader waits for ever.
// kit: tree
#include "guest.h"
#include <sys/wait.h>

enum { ROUNDS = 120, WORDS = 5 };

static struct guest_name down, up;

static void say(const char *name, long from)
{
    int fd = open(name, O_WRONLY);

    CHECK(fd >= 0);
    for (long n = from; n < from + WORDS; n++)
        guest_write_all(fd, &n, sizeof n);
    CHECK(close(fd) == 0);
}

static void hear(const char *name, long from)
{
    int fd = open(name, O_RDONLY);
    long n, wanted = from;

    CHECK(fd >= 0);
    for (ssize_t got; (got = read(fd, &n, sizeof n)) != 0; wanted++)
        CHECK(got == sizeof n && n == wanted);
    CHECK(wanted == from + WORDS && close(fd) == 0);
}

int main(void)
{
    int status;

    guest_scratch();
    down = guest_path("down");
    up = guest_path("up");
    CHECK(mkfifo(down.s, 0600) == 0 && mkfifo(up.s, 0600) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        for (long r = 0; r < ROUNDS; r++) {
            hear(down.s, r * 100);
            say(up.s, r * 100 + 50);
        }
        _exit(0);
    }
    for (long r = 0; r < ROUNDS; r++) {
        say(down.s, r * 100);
        hear(up.s, r * 100 + 50);
        guest_pause_us(3000);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(unlink(down.s) == 0 && unlink(up.s) == 0);
    guest_scratch_end();
    printf("rounds %d\n", ROUNDS);
    return guest_ok();
}
