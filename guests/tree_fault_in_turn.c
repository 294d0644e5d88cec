// Shows: a child dies of a fault while its parent works and then waits for it; again and again.
// Breaks if: whoever waits for a turn waits for that of one that has died in it, and that only its parent can ask for.
// kit: tree
// kit: serial the turn of one that dies is given back by nobody
// kit: allow promoted a standby takes over, and dies of the same
// kit: allow standby_lost it comes to the fault by itself
// kit: allow unprotected as above
#include "guest.h"
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { ROUNDS = 6, STEPS = 20 };

int main(void)
{
    struct rlimit none = { 0, 0 };
    volatile int *volatile null = NULL;
    int status;

    CHECK(setrlimit(RLIMIT_CORE, &none) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        int ends[2];
        char byte;
        CHECK(pipe(ends) == 0);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            for (int i = 0; i < STEPS; i++) {
                CHECK(write(ends[1], "x", 1) == 1);
                guest_pause_us(700);
            }
            *null = 1;
            _exit(49);
        }
        CHECK(close(ends[1]) == 0);
        int seen = 0;
        while (read(ends[0], &byte, 1) == 1)
            seen++;
        CHECK(seen == STEPS && close(ends[0]) == 0);
        CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    }
    return guest_ok();
}
