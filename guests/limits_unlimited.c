// Shows: a process that takes its limits of memory away has none after execs that failed, nor does what it executes at last.
// Breaks if: limits come back that nobody has set, and memory runs out.
// kit: allow unprotected an exec that fails costs the standby
// kit: allow standby_lost the same, if the end of the standby is seen first
// kit: no-kill the standby is gone at each exec
#include "guest.h"
#include <sys/resource.h>
#include <sys/wait.h>

enum { MIB = 64 };

static const struct { int which; rlim_t soft; } LIMITS[] = { { RLIMIT_DATA, 2L << 30 }, { RLIMIT_AS, 4L << 30 } };

static void check(rlim_t data, rlim_t all)
{
    struct rlimit limit;

    CHECK(getrlimit(RLIMIT_DATA, &limit) == 0 && limit.rlim_cur == data);
    CHECK(getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur == all);
    char *memory = malloc((size_t)MIB << 20);
    CHECK(memory);
    memset(memory, 1, (size_t)MIB << 20);
    free(memory);
}

static void bound(int at, rlim_t soft)
{
    struct rlimit limit;

    CHECK(getrlimit(LIMITS[at].which, &limit) == 0);
    limit.rlim_cur = soft;
    CHECK(setrlimit(LIMITS[at].which, &limit) == 0);
}

int main(int argc, char **argv)
{
    char *none[] = { NULL };
    struct rlimit limit;

    for (int at = 0; at < 2; at++) {
        CHECK(getrlimit(LIMITS[at].which, &limit) == 0);
        if (limit.rlim_max != RLIM_INFINITY) {
            puts("its limits cannot be taken away");
            return guest_ok();
        }
    }
    if (argc == 2) {
        check(RLIM_INFINITY, RLIM_INFINITY);
        return guest_ok();
    }
    for (int round = 0; round < 20; round++) {
        /* Without a bound from the start, or again. */
        for (int at = 0; at < 2; at++)
            bound(at, RLIM_INFINITY);
        for (int attempt = 0; attempt < 2; attempt++)
            FAILS(execve("/", none, none), EACCES);
        check(RLIM_INFINITY, RLIM_INFINITY);
        for (int at = 0; at < 2; at++)
            bound(at, LIMITS[at].soft);
        for (int attempt = 0; attempt < 2; attempt++)
            FAILS(execve("/", none, none), EACCES);
        check(LIMITS[0].soft, LIMITS[1].soft);
        guest_pause_us(2000);
    }
    for (int at = 0; at < 2; at++)
        bound(at, RLIM_INFINITY);
    FAILS(execve("/", none, none), EACCES);
    execl("/proc/self/exe", argv[0], "again", NULL);
    return 1;
}
