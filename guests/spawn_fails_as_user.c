// Shows: a user without rights spawns a program that is not there, with a pipe open: the error comes, after hardly a rest.
// Breaks if: the runtime waits to look into a child that has ended, whose /proc is root's alone.
// kit: no-kill a spawn in doubt that had failed succeeds, as LIMITS says
// kit: no-faults the same
#include "guest.h"
#include <spawn.h>
#include <sys/resource.h>

enum { ROUNDS = 40, NOBODY = 65534 };

extern char **environ;

/* How often the process has come to rest: no matter of how fast the machine is. */
static long rests(void)
{
    struct rusage usage;

    ZERO(getrusage(RUSAGE_SELF, &usage));
    return usage.ru_nvcsw;
}

int main(void)
{
    int own[2];
    long least = 1000000;
    char *words[] = { "no-such-program", NULL };

    if (geteuid() == 0)
        CHECK(setresgid(NOBODY, NOBODY, NOBODY) == 0 && setresuid(NOBODY, NOBODY, NOBODY) == 0);
    CHECK(pipe2(own, O_CLOEXEC) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        long before = rests();
        pid_t child = 0;
        RETURNS(posix_spawn(&child, "/no-such-folder/no-such-program", NULL, NULL, words, environ), ENOENT);
        long more = rests() - before;
        least = more < least ? more : least;
        char byte = (char)('a' + r % 26);
        CHECK(write(own[1], &byte, 1) == 1 && read(own[0], &byte, 1) == 1 && byte == 'a' + r % 26);
    }
    CHECK(least < 40);
    return guest_ok();
}
