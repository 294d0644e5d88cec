// Shows: a grandchild outlives the process in between, sees that its parent is another one now, and talks on; main learns of its end by the end of a pipe.
// Breaks if: an orphan ends with its parent, follows no failover any more, or is told of to main's wait.
// kit: tree
#include "guest.h"
#include <poll.h>
#include <sys/wait.h>

enum { ROUNDS = 300 };

struct message {
    long number;
    long orphaned;
};

static void grandchild(int in, int out, pid_t middle)
{
    struct message m;

    for (long r = 0; r < ROUNDS; r++) {
        guest_read_all(in, &m, sizeof m);
        CHECK(m.number == r);
        m.number = r + 7;
        m.orphaned = getppid() != middle;
        guest_write_all(out, &m, sizeof m);
    }
    _exit(99); /* nobody will ask */
}

static void middle(int in, int out)
{
    pid_t me = getpid(), pid = fork();

    CHECK(pid >= 0);
    if (pid == 0)
        grandchild(in, out, me);
    CHECK(close(in) == 0 && close(out) == 0);
    for (int s = 0; s < 60; s++)
        guest_pause_us(2000);
    _exit(3);
}

int main(void)
{
    int down[2], up[2], status;
    long orphaned = 0;
    struct message m;

    CHECK(pipe(down) == 0 && pipe(up) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        CHECK(close(down[1]) == 0 && close(up[0]) == 0);
        middle(down[0], up[1]);
    }
    CHECK(close(down[0]) == 0 && close(up[1]) == 0);
    for (long r = 0; r < ROUNDS; r++) {
        if (r == ROUNDS / 2) {
            CHECK(waitpid(-1, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 3);
            FAILS(waitpid(-1, &status, WNOHANG), ECHILD);
        }
        m.number = r;
        guest_write_all(down[1], &m, sizeof m);
        guest_read_all(up[0], &m, sizeof m);
        /* Once it has another parent, it keeps it. */
        CHECK(m.number == r + 7 && m.orphaned >= orphaned);
        orphaned = m.orphaned;
        guest_pause_us(1300);
    }
    CHECK(orphaned == 1);
    struct pollfd end = { .fd = up[0], .events = POLLIN };
    CHECK(poll(&end, 1, -1) == 1 && (end.revents & POLLHUP) && read(up[0], &m, 1) == 0);
    FAILS(waitpid(-1, &status, 0), ECHILD);
    printf("rounds %d\n", ROUNDS);
    return guest_ok();
}
