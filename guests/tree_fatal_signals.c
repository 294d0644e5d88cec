// Shows: children that work for a while and then die of what they did: abort, a null pointer, a trap, a bus error, a division, a full file, time.
// Breaks if: such an end is taken for a primary's death, and its standby repeats it or goes on; or the parent hears of another signal.
// kit: tree
// kit: allow promoted a standby takes over, and dies of the same
// kit: allow standby_lost it comes to the fault by itself
// kit: allow unprotected as above
#include "guest.h"
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { KINDS = 7 };

static void die(int kind, const char *name)
{
    struct rlimit none = { 0, 0 };
    volatile int zero = 0, seven = 7;
    volatile int *volatile null = NULL;

    CHECK(setrlimit(RLIMIT_CORE, &none) == 0);
    switch (kind) {
    case 0:
        abort();
    case 1:
        *null = 1;
        break;
    case 2:
        __builtin_trap();
    case 3:
        CHECK(raise(SIGBUS) == 0);
        break;
    case 4:
        zero = seven / zero;
        break;
    case 5: {
        struct rlimit little = { 1000, 1000 };
        int fd = open(name, O_RDWR | O_CREAT, 0600);
        CHECK(fd >= 0 && setrlimit(RLIMIT_FSIZE, &little) == 0 && write(fd, name, 10) == 10);
        CHECK(pwrite(fd, name, 10, 1000) == 10);
        break;
    }
    default:
        CHECK(raise(SIGXCPU) == 0);
    }
    _exit(49);
}

int main(void)
{
    static const int wanted[KINDS] = { SIGABRT, SIGSEGV, SIGILL, SIGBUS, SIGFPE, SIGXFSZ, SIGXCPU };
    int status;

    guest_scratch();
    struct guest_name name = guest_path("file");
    for (int round = 0; round < 2; round++)
        for (int kind = 0; kind < KINDS; kind++) {
            pid_t pid = fork();
            CHECK(pid >= 0);
            if (pid == 0) {
                for (int i = 0; i < 20; i++)
                    guest_pause_us(1200);
                die(kind, name.s);
            }
            CHECK(waitpid(pid, &status, 0) == pid);
            CHECK(WIFSIGNALED(status) && WTERMSIG(status) == wanted[kind] && !WCOREDUMP(status));
            CHECK(unlink(name.s) == 0 || errno == ENOENT);
        }
    guest_scratch_end();
    printf("kinds %d\n", KINDS);
    return guest_ok();
}
