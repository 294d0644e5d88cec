// Shows: programs that are made like vfork on a busy processor, and make a child of their own before their maker comes on; then they wait for it.
// Breaks if: the maker, when it lists such a program, takes that child for one of an earlier process of the number: nobody waits for it.
// kit: tree

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "guest.h"
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

enum { ROUNDS = 12, HOGS = 3 };

extern char **environ;

static void run_on(int processor)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    ZERO(sched_setaffinity(0, sizeof set, &set));
}

/* The new image: a child at once, which lives for a while. */
static int image(const char *code)
{
    int status;
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (pid == 0) {
        for (int n = 0; n < 25; n++)
            guest_pause_us(1000);
        _exit(atoi(code));
    }
    CHECK(waitpid(-1, &status, 0) == pid && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static pid_t make(char *name, int n, const cpu_set_t *all)
{
    char code[16];
    char *const arguments[] = { name, code, NULL };

    snprintf(code, sizeof code, "%d", n);
    pid_t pid = vfork();
    if (pid == 0) {
        sched_setaffinity(0, sizeof *all, all);
        execve("/proc/self/exe", arguments, environ);
        _exit(127);
    }
    CHECK(pid > 0);
    return pid;
}

int main(int argc, char **argv)
{
    cpu_set_t all;
    pid_t hogs[HOGS];
    int status, last = -1, sum = 0;

    if (argc > 1)
        return image(argv[1]);
    ZERO(sched_getaffinity(0, sizeof all, &all));
    for (int n = 0; n < CPU_SETSIZE; n++)
        if (CPU_ISSET(n, &all))
            last = n;
    /* Others want this processor as well, but not the one that the new images go to. */
    for (int n = 0; n < HOGS; n++) {
        CHECK((hogs[n] = fork()) >= 0);
        if (hogs[n] == 0) {
            run_on(last);
            for (volatile long spins = 0;; spins++)
                if (spins % 1000000 == 0 && getppid() == 1)
                    _exit(0);
        }
    }
    run_on(last);
    for (int n = 1; n <= ROUNDS; n++) {
        pid_t pid = make(argv[0], n, &all);

        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
        CHECK(WEXITSTATUS(status) == n);
        sum += WEXITSTATUS(status);
    }
    for (int n = 0; n < HOGS; n++) {
        ZERO(kill(hogs[n], SIGKILL));
        CHECK(waitpid(hogs[n], &status, 0) == hogs[n] && WIFSIGNALED(status));
    }
    printf("sum %d\n", sum);
    return guest_ok();
}
