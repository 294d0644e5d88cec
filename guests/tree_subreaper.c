// Shows: a program that has made itself the reaper of its descendants: orphans become its children, see it as parent, and are waited for.
// Breaks if: an orphan goes to somebody else, or its end is not told, once its parent or its reaper goes on in another copy.
// kit: no-kill no process below a reaper of orphans joins: its standby would be found among the reaper's children
#include "guest.h"
#include <sys/prctl.h>
#include <sys/wait.h>

enum { ROUNDS = 14, STEPS = 15 };

static void orphan(int in, int out, pid_t reaper, int r)
{
    long n;

    while (getppid() != reaper)
        guest_pause_us(200);
    while (read(in, &n, sizeof n) == sizeof n) {
        CHECK(getppid() == reaper);
        n = -n;
        guest_write_all(out, &n, sizeof n);
    }
    _exit(r + 60);
}

int main(void)
{
    pid_t reaper = getpid();
    long sum = 0;

    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        int down[2], up[2], status;
        pid_t grandchild;
        CHECK(pipe(down) == 0 && pipe(up) == 0);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            CHECK(close(down[1]) == 0 && close(up[0]) == 0);
            grandchild = fork();
            CHECK(grandchild >= 0);
            if (grandchild == 0)
                orphan(down[0], up[1], reaper, r);
            guest_write_all(up[1], &grandchild, sizeof grandchild);
            _exit(r + 30);
        }
        CHECK(close(down[0]) == 0 && close(up[1]) == 0);
        guest_read_all(up[0], &grandchild, sizeof grandchild);
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == r + 30);
        for (long s = 1; s <= STEPS; s++) {
            long n = r * 100 + s, answer;
            guest_write_all(down[1], &n, sizeof n);
            guest_read_all(up[0], &answer, sizeof answer);
            CHECK(answer == -n);
            guest_pause_us(1500);
        }
        CHECK(close(down[1]) == 0);
        CHECK(waitpid(-1, &status, 0) == grandchild && WIFEXITED(status) && WEXITSTATUS(status) == r + 60);
        CHECK(close(up[0]) == 0);
        sum += WEXITSTATUS(status);
    }
    FAILS(waitpid(-1, NULL, 0), ECHILD);
    printf("sum %ld\n", sum);
    return guest_ok();
}
