// Shows: processes in several pid namespaces have the same numbers, and each is told of its own children alone, by wait and by SIGCHLD.
// Breaks if: they are known to the group by the numbers that they have there: an end, a signal, a lock's owner is then another one's.
// kit: no-kill a process of another pid namespace has no standby
// kit: allow unprotected unshare costs the standby, and a new one is made
// kit: no-record the recording ends at the call that cannot be replayed, and says so
#include "one_child.h"
#include <sched.h>

enum { SPACES = 4, CHILDREN = 25 };

/* The first process of a namespace: its children have the numbers 2, 3, ... here, as those of the others have there. */
static void first(int space)
{
    struct sigaction action = {.sa_handler = on_child};
    int status, code, line[2];
    char token;

    RETURNS(getpid(), 1);
    RETURNS(getppid(), 0);
    CHECK(sigaction(SIGCHLD, &action, NULL) == 0);
    for (int i = 0; i < CHILDREN; i++) {
        CHECK(pipe(line) == 0);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            RETURNS(getppid(), 1);
            guest_read_all(line[0], &token, 1);
            /* Some are there for long enough to be given a standby elsewhere. */
            guest_pause_us(i % 5 ? 500 : 15000);
            _exit(space * 32 + i);
        }
        RETURNS(child, i + 2);
        CHECK(kill(child, 0) == 0 && waitpid(child, &status, WNOHANG) == 0 && told == i);
        guest_write_all(line[1], "x", 1);
        CHECK(await_exit(-1, &code) == child && code == space * 32 + i);
        CHECK(waitpid(-1, &status, 0) < 0 && errno == ECHILD && told == i + 1);
        CHECK(close(line[0]) == 0 && close(line[1]) == 0);
    }
    execlp("sh", "sh", "-c", "test $$ = 1 && (exit 3); test $? = 3 && exit 55", (char *)NULL);
    _exit(1);
}

int main(void)
{
    pid_t makers[SPACES];
    int status;

    for (int s = 0; s < SPACES; s++) {
        makers[s] = fork();
        CHECK(makers[s] >= 0);
        if (makers[s] == 0) {
            if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0)
                _exit(55);
            pid_t child = fork();
            CHECK(child >= 0);
            if (child == 0)
                first(s);
            CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
            _exit(WEXITSTATUS(status));
        }
    }
    for (int s = 0; s < SPACES; s++) {
        CHECK(waitpid(makers[s], &status, 0) == makers[s] && WIFEXITED(status));
        RETURNS(WEXITSTATUS(status), 55);
    }
    return guest_ok();
}
