// Shows: a child changes its user, executes this program, and makes a child of its own; another child makes one in a root of its own.
//        All of them talk with the first process, and each may be struck.
// Breaks if: who cannot open the files of its group does not become a member, or has another number or parent afterwards.
// kit: tree
// kit: no-record a replay begins each image without the limits that were set before it
#include "guest.h"
#include <grp.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { NOBODY = 65534, ROUNDS = 400 };

/* Bounds that the new image could not raise. */
static const struct rlimit LIMITS[] = { { 256 << 20, 256 << 20 }, { 300 << 20, 400 << 20 } };
static const int KINDS[] = { RLIMIT_DATA, RLIMIT_AS };

static void check_limits(void)
{
    struct rlimit limit;

    for (int k = 0; k < 2; k++) {
        CHECK(getrlimit(KINDS[k], &limit) == 0);
        CHECK(limit.rlim_cur == LIMITS[k].rlim_cur && limit.rlim_max == LIMITS[k].rlim_max);
    }
    CHECK(malloc(500 << 20) == NULL);
}

/* Hands each number on, with one added for this process. */
static void serve(int in, int out)
{
    long number;

    for (int r = 0; r < ROUNDS; r++) {
        guest_read_all(in, &number, sizeof number);
        number++;
        guest_write_all(out, &number, sizeof number);
    }
}

/* The process and a child of its: two who hand numbers on. */
static int serve_as_two(int in, int out)
{
    int between[2], status;
    pid_t own = getpid();

    CHECK(pipe(between) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        CHECK(getppid() == own);
        serve(in, between[1]);
        CHECK(getppid() == own);
        _exit(7);
    }
    serve(between[0], out);
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    CHECK(getpid() == own);
    return 42;
}

/* Whoever is not root tries the same as the user that it is. */
static void become_nobody(void)
{
    if (geteuid() == 0)
        CHECK(setgroups(0, NULL) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
}

static void executed(char *name, int in, int out)
{
    char texts[2][16];

    for (int k = 0; k < 2; k++)
        CHECK(setrlimit(KINDS[k], &LIMITS[k]) == 0);
    become_nobody();
    snprintf(texts[0], sizeof texts[0], "%d", in);
    snprintf(texts[1], sizeof texts[1], "%d", out);
    execl("/proc/self/exe", name, texts[0], texts[1], NULL);
    _exit(1);
}

static void jailed(int in, int out)
{
    if (geteuid() == 0)
        CHECK(chroot(".") == 0 && chdir("/") == 0);
    become_nobody();
    _exit(serve_as_two(in, out));
}

int main(int argc, char **argv)
{
    int down[2][2], up[2][2], status;
    pid_t pids[2];

    if (argc == 3) {
        check_limits();
        status = serve_as_two(atoi(argv[1]), atoi(argv[2]));
        check_limits();
        _exit(status);
    }
    guest_scratch();
    struct guest_name jail = guest_path("jail");
    CHECK(mkdir(jail.s, 0755) == 0);
    for (int c = 0; c < 2; c++) {
        CHECK(pipe(down[c]) == 0 && pipe(up[c]) == 0);
        pids[c] = fork();
        CHECK(pids[c] >= 0);
        if (pids[c] == 0) {
            if (c == 0)
                executed(argv[0], down[c][0], up[c][1]);
            CHECK(chdir(jail.s) == 0);
            jailed(down[c][0], up[c][1]);
        }
        CHECK(close(down[c][0]) == 0 && close(up[c][1]) == 0);
    }
    for (long r = 0; r < ROUNDS; r++) {
        for (int c = 0; c < 2; c++) {
            long number = 1000 * r + c;
            guest_write_all(down[c][1], &number, sizeof number);
            guest_read_all(up[c][0], &number, sizeof number);
            CHECK(number == 1000 * r + c + 2);
        }
        guest_pause_us(1000);
    }
    for (int c = 0; c < 2; c++)
        CHECK(waitpid(pids[c], &status, 0) == pids[c] && WIFEXITED(status) && WEXITSTATUS(status) == 42);
    CHECK(rmdir(jail.s) == 0);
    guest_scratch_end();
    return guest_ok();
}
