// Shows: programs that are executed under a limit of memory (soft, or hard as well) that they just fit into: they run, they say
// nothing, they see the limit that was set, and get no more.
// Breaks if: what the loader maps of the runtime counts against the program's limit: a library finds no room, or the loader complains.
// kit: no-kill its children live for some milliseconds
// kit: no-record a replay of an image has the limits of who replays it
// kit: allow unprotected an image with too little room for two copies is never protected
#include "guest.h"
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { STEPS = 14 };
extern char **environ;

static int report[2];

/* Under the limit: nothing may have been said, and this much is there natively. */
static int executed(int which, rlim_t soft, rlim_t hard)
{
    struct rlimit limit;

    CHECK(getrlimit(which, &limit) == 0 && limit.rlim_cur == soft && limit.rlim_max == hard);
    char *memory = malloc(200 << 10);
    CHECK(memory);
    memset(memory, 1, 200 << 10);
    /* And no more than that: before it may have got a standby, and when it may have one. */
    for (int r = 0; which == RLIMIT_AS && r < 2; r++) {
        CHECK(malloc(soft + (100 << 20)) == NULL);
        guest_pause_us(r == 0 && soft < (10 << 20) ? 20000 : 0);
    }
    return 7;
}

static void run(int which, rlim_t soft, rlim_t hard, int by_spawn)
{
    char name[8], low[32], high[32], said[200];
    char *arguments[] = { "limits_over_exec", name, low, high, NULL };
    struct rlimit before, limit = { soft, hard };
    pid_t pid;
    int status;

    snprintf(name, sizeof name, "%d", which);
    snprintf(low, sizeof low, "%llu", (unsigned long long)soft);
    snprintf(high, sizeof high, "%llu", (unsigned long long)hard);
    CHECK(pipe2(report, O_CLOEXEC) == 0);
    CHECK(getrlimit(which, &before) == 0);
    if (by_spawn) {
        posix_spawn_file_actions_t actions;

        CHECK(posix_spawn_file_actions_init(&actions) == 0);
        CHECK(posix_spawn_file_actions_adddup2(&actions, report[1], 2) == 0);
        CHECK(setrlimit(which, &limit) == 0);
        CHECK(posix_spawn(&pid, "/proc/self/exe", &actions, NULL, arguments, environ) == 0);
        CHECK(setrlimit(which, &before) == 0);
        CHECK(posix_spawn_file_actions_destroy(&actions) == 0);
    } else if ((pid = fork()) == 0) {
        CHECK(dup2(report[1], 2) == 2);
        CHECK(setrlimit(which, &limit) == 0);
        execv("/proc/self/exe", arguments);
        _exit(99);
    }
    CHECK(pid > 0);
    close(report[1]);
    ssize_t bytes = read(report[0], said, sizeof said - 1);
    said[bytes < 0 ? 0 : bytes] = 0;
    CHECK(waitpid(pid, &status, 0) == pid);
    if (bytes != 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 7) {
        printf("limit %d of %s, %s: status %x, it said: %s\n", which, low, by_spawn ? "spawned" : "forked", status, said);
        exit(1);
    }
    close(report[0]);
}

int main(int argc, char **argv)
{
    struct rlimit now;

    if (argc == 4)
        return executed(atoi(argv[1]), strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10));
    for (int which = 0; which < 2; which++) {
        int kind = which ? RLIMIT_AS : RLIMIT_DATA;
        /* From what the program needs natively up to what it needs beside the runtime, and some. */
        for (int step = 0; step < STEPS; step++) {
            rlim_t soft = which ? ((rlim_t)(7 * step + 6) << 20) : ((rlim_t)(4 * step + 2) << 20);

            CHECK(getrlimit(kind, &now) == 0);
            run(kind, soft, now.rlim_max, 1);
            run(kind, soft, now.rlim_max, 0);
            run(kind, soft, soft, 0);
        }
    }
    return guest_ok();
}
