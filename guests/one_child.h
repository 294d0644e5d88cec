// A process with one child that must be told of it exactly once: for guests about SIGCHLD.
#ifndef ONE_CHILD_H
#define ONE_CHILD_H

#include "guest.h"
#include <signal.h>
#include <sys/wait.h>

/* How often SIGCHLD has come. */
static volatile sig_atomic_t told;

static inline void on_child(int signal)
{
    (void)signal;
    told++;
}

/* Waits for a child, whose own business it is not to end by a signal. -1 for any. Its number. */
static inline pid_t await_exit(pid_t pid, int *code)
{
    int status;
    pid_t got;
    while ((got = waitpid(pid, &status, 0)) < 0)
        CHECK(errno == EINTR);
    CHECK(WIFEXITED(status));
    *code = WEXITSTATUS(status);
    return got;
}

static inline int status_of(pid_t pid)
{
    int code;
    CHECK(await_exit(pid, &code) == pid);
    return code;
}

/* Has one child, which is the only one that it hears of. */
static inline void has_one(void)
{
    struct sigaction action = {.sa_handler = on_child};
    int line[2], status, code;
    char token;
    CHECK(sigaction(SIGCHLD, &action, NULL) == 0 && pipe(line) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        guest_read_all(line[0], &token, 1);
        guest_pause_us(30000);
        _exit(5);
    }
    CHECK(waitpid(-1, &status, WNOHANG) == 0 && told == 0);
    guest_write_all(line[1], "x", 1);
    CHECK(await_exit(-1, &code) == child && code == 5);
    CHECK(waitpid(-1, &status, 0) < 0 && errno == ECHILD);
    if (told != 1)
        fprintf(stderr, "told of %d children\n", (int)told);
    CHECK(told == 1);
    _exit(7);
}

#endif
