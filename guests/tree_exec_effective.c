// Shows: a process that has given up root for a while executes what its effective user may, and is refused what that one may not.
// Breaks if: an exec is refused because the real user may not execute the file.
// kit: tree
// kit: no-kill the children are refused or replaced at once, and nothing else happens
// kit: allow unprotected an exec that is refused ends the standby of its process first
// kit: no-record a replay finds the file that was executed gone
#include "guest.h"
#include <sys/wait.h>

enum { NOBODY = 65534, ROUNDS = 2 };

/* The status of a child that executes `file` as this real and this effective user; 100 and the error if it is refused. */
static int executed(uid_t real, uid_t effective, const char *file)
{
    int status;
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        guest_pause_us(30000); /* long enough for a standby */
        CHECK(setresuid(real, effective, 0) == 0);
        execl(file, file, "-c", "exit 7", NULL);
        _exit(100 + errno);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

int main(void)
{
    char shell[4096];
    int from, to;
    ssize_t n;

    if (geteuid() != 0) {
        puts("not root: there is one user");
        return guest_ok();
    }
    guest_scratch();
    struct guest_name own = guest_path("shell"), plain = guest_path("plain");
    /* A copy of the shell that root alone may execute. */
    CHECK((from = open("/bin/sh", O_RDONLY)) >= 0 && (to = open(own.s, O_WRONLY | O_CREAT, 0700)) >= 0);
    while ((n = read(from, shell, sizeof shell)) > 0)
        guest_write_all(to, shell, (size_t)n);
    CHECK(n == 0 && close(from) == 0 && close(to) == 0 && chmod(own.s, 0700) == 0);
    CHECK((to = open(plain.s, O_WRONLY | O_CREAT, 0600)) >= 0 && close(to) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        CHECK(executed(0, 0, own.s) == 7);
        CHECK(executed(NOBODY, 0, own.s) == 7);
        CHECK(executed(NOBODY, NOBODY, own.s) == 100 + EACCES);
        CHECK(executed(0, NOBODY, own.s) == 100 + EACCES);
        CHECK(executed(NOBODY, 0, plain.s) == 100 + EACCES);
        CHECK(executed(NOBODY, 0, "/nowhere") == 100 + ENOENT);
    }
    CHECK(unlink(own.s) == 0 && unlink(plain.s) == 0);
    guest_scratch_end();
    printf("rounds %d\n", ROUNDS);
    return guest_ok();
}
