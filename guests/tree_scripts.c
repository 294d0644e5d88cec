// Shows: what exec does with scripts, with a large environment and with what cannot be executed: a shell's script, fexecve, ENOEXEC, EACCES, E2BIG.
// Breaks if: an exec that fails has cost the process something, or an image started by a script or a descriptor is not the one it seems.
// kit: tree
#include "guest.h"
#include <sys/wait.h>

enum { ROUNDS = 8 };

extern char **environ;

static void script(const char *name, const char *text, mode_t mode)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    CHECK(fd >= 0);
    guest_write_all(fd, text, strlen(text));
    CHECK(fchmod(fd, mode) == 0 && close(fd) == 0);
}

static int ended(pid_t pid)
{
    int status;

    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    return WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
    static char big[100000];
    char *huge[64], *none[] = { NULL };
    pid_t pid;

    if (argc == 3) {
        CHECK(getenv("BIG") && strlen(getenv("BIG")) == sizeof big - 5 && strcmp(argv[1], "by") == 0);
        guest_pause_us(8000);
        return 31;
    }
    guest_scratch();
    struct guest_name good = guest_path("good"), plain = guest_path("plain"), closed = guest_path("closed"), bad = guest_path("bad");
    script(good.s, "#!/bin/sh -e\ntest \"$1\" = one && test $# = 2 && sleep 0.01 && exit 21\n", 0700);
    script(plain.s, "exit 22\n", 0700);
    script(closed.s, "#!/bin/sh\nexit 23\n", 0600);
    script(bad.s, "#!/nowhere/interpreter\n", 0700);
    memset(big, 'b', sizeof big - 1);
    memcpy(big, "BIG=", 4);
    for (int i = 0; i < 63; i++)
        huge[i] = big;
    huge[63] = NULL;
    for (int r = 0; r < ROUNDS; r++) {
        char *arguments[] = { good.s, (char *)"one", (char *)"two", NULL }, *own[] = { argv[0], (char *)"by", (char *)"fd", NULL };
        pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            FAILS(execve("/nowhere/at/all", arguments, environ), ENOENT);
            FAILS(execve(closed.s, arguments, environ), EACCES);
            FAILS(execve(plain.s, arguments, environ), ENOEXEC);
            FAILS(execve(bad.s, arguments, environ), ENOENT);
            FAILS(execve(guest_scratch_dir, arguments, environ), EACCES);
            if (r % 2)
                FAILS(execve(good.s, arguments, huge), E2BIG);
            execve(good.s, arguments, environ);
            _exit(99);
        }
        CHECK(ended(pid) == 21);
        pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
            CHECK(fd >= 0);
            for (int i = 0; environ[i]; i++)
                if (strncmp(environ[i], "BIG=", 4) == 0)
                    _exit(98);
            CHECK(putenv(big) == 0);
            fexecve(fd, own, environ);
            _exit(99);
        }
        CHECK(ended(pid) == 31);
        pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            execlp(plain.s, plain.s, (char *)NULL);
            _exit(99);
        }
        CHECK(ended(pid) == 22);
        pid = vfork();
        CHECK(pid >= 0);
        if (pid == 0) {
            execve("/nowhere/at/all", arguments, none);
            _exit(errno == ENOENT ? 27 : 99);
        }
        CHECK(ended(pid) == 27);
        guest_pause_us(3000);
    }
    CHECK(unlink(good.s) == 0 && unlink(plain.s) == 0 && unlink(closed.s) == 0 && unlink(bad.s) == 0);
    guest_scratch_end();
    return guest_ok();
}
