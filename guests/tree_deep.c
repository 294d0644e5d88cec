// Shows: a chain of six generations: a number goes down and comes back, each adds its part; they end from the last to the first.
// Breaks if: a failover in the middle of a chain cuts it, or a process's children are given to a process that knows nothing of them.
// kit: tree
#include "guest.h"
#include <sys/wait.h>

enum { GENERATIONS = 6, ROUNDS = 220 };

/* Generation g: what comes from above goes below and back, with what this one adds. Its exit code: how many are below. */
static int live(int g, int in, int out)
{
    int down[2] = { -1, -1 }, up[2] = { -1, -1 }, status;
    pid_t pid = -1;
    long n;

    if (g + 1 < GENERATIONS) {
        CHECK(pipe(down) == 0 && pipe(up) == 0);
        pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            CHECK(close(down[1]) == 0 && close(up[0]) == 0 && close(in) == 0 && close(out) == 0);
            _exit(live(g + 1, down[0], up[1]));
        }
        CHECK(close(down[0]) == 0 && close(up[1]) == 0);
    }
    while (read(in, &n, sizeof n) == sizeof n) {
        n = n * 2 + g;
        if (pid > 0) {
            guest_write_all(down[1], &n, sizeof n);
            guest_read_all(up[0], &n, sizeof n);
        }
        n += g;
        guest_write_all(out, &n, sizeof n);
    }
    if (pid < 0)
        return 0;
    CHECK(close(down[1]) == 0 && read(up[0], &n, 1) == 0);
    CHECK(waitpid(-1, &status, 0) == pid && WIFEXITED(status));
    return WEXITSTATUS(status) + 1;
}

int main(void)
{
    int down[2], up[2], status;
    long sum = 0;

    CHECK(pipe(down) == 0 && pipe(up) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        CHECK(close(down[1]) == 0 && close(up[0]) == 0);
        _exit(live(1, down[0], up[1]));
    }
    CHECK(close(down[0]) == 0 && close(up[1]) == 0);
    for (long r = 0; r < ROUNDS; r++) {
        long n = r, wanted = r;
        for (int g = 1; g < GENERATIONS; g++)
            wanted = wanted * 2 + g;
        for (int g = 1; g < GENERATIONS; g++)
            wanted += g;
        guest_write_all(down[1], &n, sizeof n);
        guest_read_all(up[0], &n, sizeof n);
        CHECK(n == wanted);
        sum += n;
        guest_pause_us(1500);
    }
    CHECK(close(down[1]) == 0);
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == GENERATIONS - 2);
    printf("sum %ld\n", sum);
    return guest_ok();
}
