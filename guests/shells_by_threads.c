// Shows: six threads that call popen, pclose and system at once, and close one of popen's streams by fclose.
// Breaks if: two threads of a standby come to what these functions have in common in another order than their primary's.
#include "guest.h"
#include <sys/wait.h>

/* Each of the two closes what the other is for as well. */
#pragma GCC diagnostic ignored "-Wmismatched-dealloc"

enum { THREADS = 6, ROUNDS = 6 };

static void *shells(void *argument)
{
    int thread = (int)guest_num(argument);
    char line[64], script[96];

    for (int round = 0; round < ROUNDS; round++) {
        int number = thread * ROUNDS + round;

        snprintf(script, sizeof script, "echo %d; read word; exit %d", number, number % 50);
        /* The second is one of the first's elders, whose end of the pipe it must not keep open. */
        FILE *in = popen(script, "re");
        FILE *out = popen("read word; test \"$word\" = here", "w");
        CHECK(in && out);
        CHECK(fgets(line, sizeof line, in) && atoi(line) == number);
        CHECK(fputs("here\n", out) > 0);
        int status = round % 2 ? fclose(out) : pclose(out);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        status = pclose(in);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == number % 50);
        snprintf(script, sizeof script, "exit %d", 50 + number % 50);
        status = system(script);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 50 + number % 50);
    }
    return NULL;
}

int main(void)
{
    /* What popen refuses, and what is no shell's stream. */
    FAILS(popen("true", "rw") ? 0 : -1, EINVAL);
    FAILS(popen("true", "x") ? 0 : -1, EINVAL);
    RETURNS(system(NULL), 1);
    FILE *plain = fopen("/dev/null", "re");
    CHECK(plain && pclose(plain) == 0);
    guest_run(shells, THREADS);
    return guest_ok();
}
