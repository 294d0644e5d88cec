// Shows: children made as Go's os/exec makes them: every signal blocked, clone with CLONE_VFORK, then handlers, mask, files and
// exec by instructions of the program's own. Each works for a while, and asks whose child it is.
// Breaks if: the program behind such an exec is not of the group (its parent's number changes), or begins with another signal
// mask than it was given.
// kit: tree
#include "guest.h"
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { ROUNDS = 12, STEPS = 15, BAD = 120 };

extern char **environ;

struct action { /* the kernel's */
    void *handler;
    unsigned long flags, restorer, mask;
};

static inline __attribute__((always_inline)) long raw4(long nr, long a, long b, long c, long d)
{
    register long r10 __asm__("r10") = d;
    long result;

    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "0"(nr), "D"(a), "S"(b), "d"(c), "r"(r10)
                     : "rcx", "r11", "memory");
    return result;
}

static unsigned long set_of(int signal)
{
    return 1UL << (signal - 1);
}

/* The new image: adds up what it reads from 0, says each sum to 1, and that it is still the same one's child. */
static int add_up(const char *parent, const char *blocked)
{
    unsigned long mask = 0;
    struct action system;
    long sum = 0, n;

    ZERO(raw4(SYS_rt_sigprocmask, SIG_BLOCK, 0, (long)&mask, 8));
    CHECK(mask == strtoul(blocked, NULL, 10));
    ZERO(raw4(SYS_rt_sigaction, SIGSYS, 0, (long)&system, 8));
    CHECK(system.handler == SIG_DFL);
    while (read(0, &n, sizeof n) == sizeof n) {
        sum += n;
        CHECK(getppid() == atoi(parent));
        CHECK(raw4(SYS_getppid, 0, 0, 0, 0) == atoi(parent));
        guest_write_all(1, &sum, sizeof sum);
    }
    return (int)(sum % 100);
}

/* In the child, on its parent's memory. */
static inline __attribute__((always_inline)) void become(char *const argv[], long parent, unsigned long mask, int in, int out)
{
    struct action none = { SIG_DFL, 0, 0, 0 };
    unsigned long now = 0, all = ~0UL & ~set_of(SIGKILL) & ~set_of(SIGSTOP);

    for (int s = 1; s <= 64; s++)
        if (s != SIGKILL && s != SIGSTOP && raw4(SYS_rt_sigaction, s, (long)&none, 0, 8) != 0)
            raw4(SYS_exit, BAD, 0, 0, 0);
    if (raw4(SYS_getppid, 0, 0, 0, 0) != parent)
        raw4(SYS_exit, BAD + 1, 0, 0, 0);
    if (raw4(SYS_rt_sigprocmask, SIG_SETMASK, (long)&mask, (long)&now, 8) != 0 || now != all)
        raw4(SYS_exit, BAD + 2, 0, 0, 0);
    if (raw4(SYS_rt_sigprocmask, SIG_BLOCK, 0, (long)&now, 8) != 0 || now != mask)
        raw4(SYS_exit, BAD + 3, 0, 0, 0);
    if (raw4(SYS_dup2, in, 0, 0, 0) != 0 || raw4(SYS_dup2, out, 1, 0, 0) != 1)
        raw4(SYS_exit, BAD + 4, 0, 0, 0);
    raw4(SYS_execve, (long)"/nowhere/at/all", (long)argv, (long)environ, 0);
    raw4(SYS_execve, (long)"/proc/self/exe", (long)argv, (long)environ, 0);
    raw4(SYS_exit, BAD + 5, 0, 0, 0);
}

static __attribute__((noinline)) pid_t started(char *const argv[], unsigned long mask, int in, int out)
{
    unsigned long all = ~0UL, before;
    long parent = getpid(), pid;

    ZERO(raw4(SYS_rt_sigprocmask, SIG_SETMASK, (long)&all, (long)&before, 8));
    pid = raw4(SYS_clone, CLONE_VM | CLONE_VFORK | SIGCHLD, 0, 0, 0);
    if (pid == 0)
        become(argv, parent, mask, in, out);
    ZERO(raw4(SYS_rt_sigprocmask, SIG_SETMASK, (long)&before, 0, 8));
    return (pid_t)pid;
}

static void on_signal(int signal)
{
    (void)signal;
}

int main(int argc, char **argv)
{
    char parent[32], blocked[32];
    long total = 0;

    if (argc == 4)
        return add_up(argv[2], argv[3]);
    CHECK(signal(SIGUSR1, on_signal) != SIG_ERR && signal(SIGSYS, on_signal) != SIG_ERR);
    snprintf(parent, sizeof parent, "%d", getpid());
    for (int r = 0; r < ROUNDS; r++) {
        unsigned long mask = r % 3 == 0 ? 0 : r % 3 == 1 ? set_of(SIGUSR2) : set_of(SIGSYS) | set_of(SIGSEGV);
        char *const arguments[] = { argv[0], (char *)"add", parent, blocked, NULL };
        int down[2], up[2], status;
        long sum = 0;
        snprintf(blocked, sizeof blocked, "%lu", mask);
        CHECK(pipe2(down, O_CLOEXEC) == 0 && pipe2(up, O_CLOEXEC) == 0);
        pid_t pid = started(arguments, mask, down[0], up[1]);
        CHECK(pid > 0 && close(down[0]) == 0 && close(up[1]) == 0);
        for (long s = 0; s < STEPS; s++) {
            long n = r * 100 + s, answer;
            guest_write_all(down[1], &n, sizeof n);
            guest_read_all(up[0], &answer, sizeof answer);
            sum += n;
            CHECK(answer == sum);
            guest_pause_us(2000);
        }
        CHECK(close(down[1]) == 0);
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
        CHECK(WEXITSTATUS(status) == sum % 100);
        CHECK(close(up[0]) == 0);
        total += sum;
    }
    printf("total %ld\n", total);
    return guest_ok();
}
