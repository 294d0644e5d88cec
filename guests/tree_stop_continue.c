// Shows: a parent stops its child by SIGSTOP and lets it go on: wait tells both, and a stopped child does nothing.
// Breaks if: a child that was stopped goes on in its other copy, or its stop or continuation is not told.
// kit: tree
#include "guest.h"
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

enum { ROUNDS = 14, STEPS = 10 };

static void child(int out)
{
    for (long n = 0;; n++) {
        guest_write_all(out, &n, sizeof n);
        guest_pause_us(1500);
    }
}

static long read_number(int fd, long wanted)
{
    long n;

    guest_read_all(fd, &n, sizeof n);
    CHECK(n == wanted);
    return wanted + 1;
}

int main(void)
{
    int ends[2], status;
    long next = 0;

    CHECK(pipe(ends) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        child(ends[1]);
    struct pollfd more = { .fd = ends[0], .events = POLLIN };
    for (int r = 0; r < ROUNDS; r++) {
        for (int s = 0; s < STEPS; s++)
            next = read_number(ends[0], next);
        CHECK(kill(pid, SIGSTOP) == 0);
        CHECK(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
        while (poll(&more, 1, 0) == 1)
            next = read_number(ends[0], next);
        guest_pause_us(8000);
        CHECK(poll(&more, 1, 0) == 0 && waitpid(pid, &status, WUNTRACED | WCONTINUED | WNOHANG) == 0);
        CHECK(kill(pid, SIGCONT) == 0);
        CHECK(waitpid(pid, &status, WCONTINUED) == pid && WIFCONTINUED(status));
    }
    CHECK(kill(pid, SIGTERM) == 0);
    CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    printf("rounds %d\n", ROUNDS);
    return guest_ok();
}
