// Shows: three generations in a ring: main tells the middle one, that tells its own child, and the grandchild answers main.
// Breaks if: a process that goes on in its other copy loses its own child, or the child its grandparent's pipe.
// kit: tree
#include "guest.h"
#include <sys/wait.h>

enum { ROUNDS = 350 };

static void grandchild(int in, int out)
{
    long n;

    for (long r = 0; r < ROUNDS; r++) {
        guest_read_all(in, &n, sizeof n);
        CHECK(n == 2 * r + 1);
        n += 1000;
        guest_write_all(out, &n, sizeof n);
    }
    CHECK(read(in, &n, 1) == 0);
    _exit(21);
}

static void middle(int in, int out)
{
    int down[2], status;
    long n;

    CHECK(pipe(down) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        CHECK(close(down[1]) == 0 && close(in) == 0);
        grandchild(down[0], out);
    }
    CHECK(close(down[0]) == 0 && close(out) == 0);
    for (long r = 0; r < ROUNDS; r++) {
        guest_read_all(in, &n, sizeof n);
        CHECK(n == 2 * r);
        n++;
        guest_write_all(down[1], &n, sizeof n);
        if (r % 50 == 0)
            CHECK(waitpid(-1, &status, WNOHANG) == 0);
    }
    CHECK(read(in, &n, 1) == 0 && close(down[1]) == 0);
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 21);
    _exit(22);
}

int main(void)
{
    int down[2], up[2], status;
    long n;

    CHECK(pipe(down) == 0 && pipe(up) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        CHECK(close(down[1]) == 0 && close(up[0]) == 0);
        middle(down[0], up[1]);
    }
    CHECK(close(down[0]) == 0 && close(up[1]) == 0);
    for (long r = 0; r < ROUNDS; r++) {
        n = 2 * r;
        guest_write_all(down[1], &n, sizeof n);
        guest_read_all(up[0], &n, sizeof n);
        CHECK(n == 2 * r + 1001);
        guest_pause_us(1200);
    }
    CHECK(close(down[1]) == 0 && read(up[0], &n, 1) == 0);
    CHECK(waitpid(-1, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 22);
    FAILS(waitpid(-1, &status, 0), ECHILD);
    printf("rounds %d\n", ROUNDS);
    return guest_ok();
}
