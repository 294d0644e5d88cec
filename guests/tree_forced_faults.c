// Shows: a fault that is blocked, ignored, met in its own handler or without room for a handler ends the process; an exec keeps what is blocked.
// Breaks if: the runtime's handler for faults runs the program's although the kernel would not, or the fault comes again for ever.
// kit: tree
// kit: allow promoted a standby takes over, and dies of the same
// kit: allow standby_lost it comes to the fault by itself
// kit: allow unprotected as above
#include "guest.h"
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { KINDS = 6 };

static volatile int depth;
static char *volatile nowhere;

static void fault(void)
{
    *(volatile char *)nowhere = 1;
}

static void must_not_run(int signal)
{
    (void)signal;
    _exit(48);
}

static void again(int signal)
{
    (void)signal;
    if (depth++ > 0)
        _exit(47);
    fault();
}

__attribute__((noinline)) static int deeper(int level)
{
    volatile char room[4096];

    room[0] = (char)level;
    return level < INT_MAX ? deeper(level + 1) + room[0] : 0;
}

static void die(int kind, char *self)
{
    const struct rlimit none = { 0, 0 }, little = { 1 << 20, 1 << 20 };
    char *const arguments[] = { self, (char *)"masks", NULL };
    sigset_t block;

    CHECK(setrlimit(RLIMIT_CORE, &none) == 0);
    sigemptyset(&block);
    sigaddset(&block, SIGSEGV);
    sigaddset(&block, SIGSYS);
    sigaddset(&block, SIGTRAP);
    switch (kind) {
    case 0:
        CHECK(signal(SIGSEGV, again) != SIG_ERR);
        fault();
        break;
    case 1:
        CHECK(signal(SIGSEGV, again) != SIG_ERR);
        raise(SIGSEGV);
        break;
    case 2:
        CHECK(signal(SIGSEGV, must_not_run) != SIG_ERR && sigprocmask(SIG_BLOCK, &block, NULL) == 0);
        fault();
        break;
    case 3:
        CHECK(signal(SIGSEGV, SIG_IGN) != SIG_ERR);
        fault();
        break;
    case 4:
        CHECK(signal(SIGSEGV, must_not_run) != SIG_ERR && setrlimit(RLIMIT_STACK, &little) == 0);
        deeper(0);
        break;
    default:
        CHECK(sigprocmask(SIG_BLOCK, &block, NULL) == 0);
        execv(self, arguments);
    }
    _exit(49);
}

int main(int count, char **arguments)
{
    sigset_t blocked;
    int status;

    if (count > 1 && strcmp(arguments[1], "spawned") == 0) {
        /* libc blocks everything while it makes such a child, which then sets what its parent had blocked before. */
        CHECK(sigprocmask(SIG_BLOCK, NULL, &blocked) == 0);
        for (int signal = 1; signal < 32; signal++)
            CHECK(sigismember(&blocked, signal) == 0);
        const struct rlimit none = { 0, 0 };
        CHECK(setrlimit(RLIMIT_CORE, &none) == 0);
        raise(SIGSEGV);
        return 45;
    }
    if (count > 1) {
        CHECK(sigprocmask(SIG_BLOCK, NULL, &blocked) == 0);
        CHECK(sigismember(&blocked, SIGSEGV) == 1 && sigismember(&blocked, SIGSYS) == 1);
        CHECK(sigismember(&blocked, SIGTRAP) == 1 && sigismember(&blocked, SIGBUS) == 0);
        raise(SIGSYS);
        return 46;
    }
    for (int kind = 0; kind < KINDS; kind++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            for (int i = 0; i < 20; i++)
                guest_pause_us(1200);
            die(kind, (char *)"/proc/self/exe");
        }
        CHECK(waitpid(pid, &status, 0) == pid);
        if (kind == KINDS - 1)
            CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 46);
        else
            CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    }
    char *const spawned[] = { arguments[0], (char *)"spawned", NULL };
    pid_t child;

    ZERO(posix_spawn(&child, "/proc/self/exe", NULL, NULL, spawned, environ));
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    printf("kinds %d\n", KINDS);
    return guest_ok();
}
