// Shows: a parent ends its working child by SIGTERM or SIGKILL: it is dead for good, and wait tells the signal.
// Breaks if: a kill that the program itself wanted is taken for a failure, and the child's copy goes on.
// kit: tree
#include "guest.h"
#include <signal.h>
#include <sys/wait.h>

enum { ROUNDS = 16, STEPS = 15 };

static void work(int in, int out)
{
    for (long n; read(in, &n, sizeof n) == sizeof n;) {
        n = n * 3 + 1;
        guest_write_all(out, &n, sizeof n);
    }
    _exit(1);
}

int main(void)
{
    long sum = 0;

    for (long r = 0; r < ROUNDS; r++) {
        int down[2], up[2], status, signal = r % 2 ? SIGKILL : SIGTERM;
        long n;
        CHECK(pipe(down) == 0 && pipe(up) == 0);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            CHECK(close(down[1]) == 0 && close(up[0]) == 0);
            work(down[0], up[1]);
        }
        CHECK(close(down[0]) == 0 && close(up[1]) == 0);
        for (long s = 0; s < STEPS + r % 4; s++) {
            n = r * 1000 + s;
            guest_write_all(down[1], &n, sizeof n);
            guest_read_all(up[0], &n, sizeof n);
            CHECK(n == (r * 1000 + s) * 3 + 1);
            sum += n;
            guest_pause_us(1500);
        }
        CHECK(waitpid(pid, &status, WNOHANG) == 0);
        CHECK(kill(pid, signal) == 0);
        if (r % 3 == 0) {
            /* Dead for good: nobody holds the other end of the pipe any more. */
            CHECK(read(up[0], &n, sizeof n) == 0);
        }
        CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == signal);
        CHECK(read(up[0], &n, sizeof n) == 0);
        FAILS(kill(pid, 0), ESRCH);
        CHECK(close(down[1]) == 0 && close(up[0]) == 0);
        sum += signal;
    }
    printf("sum %ld\n", sum);
    return guest_ok();
}
