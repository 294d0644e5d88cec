// Shows: PR_SET_PDEATHSIG with SIGKILL, and with a signal whose default action ends a program, kept over an exec: with the parent
//   both of its children end, and not before.
// Breaks if: the death of a parent's primary, whose other copy goes on, ends its children; or its end does not, because it or they have
//   failed over.
// kit: tree
#include "guest.h"
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { ROUNDS = 100, CHILDREN = 2 };

/* Answers for as long as it lives. */
static void answer(int in, int out, int wanted)
{
    long n;

    for (;;) {
        int signal = 0;
        guest_read_all(in, &n, sizeof n);
        CHECK(prctl(PR_GET_PDEATHSIG, &signal) == 0 && signal == wanted);
        guest_write_all(out, &n, sizeof n);
    }
}

static void child(char *self, int in, int out, int signal)
{
    char from[16], to[16], wanted[16];

    CHECK(prctl(PR_SET_PDEATHSIG, signal) == 0);
    if (signal == SIGKILL)
        answer(in, out, signal);
    snprintf(from, sizeof from, "%d", in);
    snprintf(to, sizeof to, "%d", out);
    snprintf(wanted, sizeof wanted, "%d", signal);
    execl("/proc/self/exe", self, from, to, wanted, (char *)NULL);
    CHECK(!"execl");
}

static void parent(char *self)
{
    static const int signals[CHILDREN] = { SIGKILL, SIGTERM };
    int down[CHILDREN][2], back[CHILDREN][2];

    for (int i = 0; i < CHILDREN; i++) {
        CHECK(pipe(down[i]) == 0 && pipe(back[i]) == 0);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            /* It keeps the other end of its input open: only the signal ends it. */
            child(self, down[i][0], back[i][1], signals[i]);
        }
        CHECK(close(down[i][0]) == 0 && close(back[i][1]) == 0);
    }
    for (long r = 0; r < ROUNDS; r++) {
        long n = -1;
        for (int i = 0; i < CHILDREN; i++) {
            guest_write_all(down[i][1], &r, sizeof r);
            guest_read_all(back[i][0], &n, sizeof n);
            CHECK(n == r);
        }
        guest_pause_us(2000);
    }
    _exit(9);
}

int main(int argc, char **argv)
{
    int up[2], status;
    char c;

    if (argc == 4)
        answer(atoi(argv[1]), atoi(argv[2]), atoi(argv[3]));
    CHECK(argc == 1 && pipe(up) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        CHECK(close(up[0]) == 0);
        parent(argv[0]);
    }
    CHECK(close(up[1]) == 0);
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 9);
    /* Both children have it open: its end is theirs. */
    CHECK(read(up[0], &c, 1) == 0);
    return guest_ok();
}
