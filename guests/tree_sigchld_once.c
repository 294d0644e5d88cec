// Shows: one child's end is one SIGCHLD, which is there before the wait that tells of it returns: also to a process that is killed meanwhile.
// Breaks if: a signal is lost with a primary that had been told of the end, or a wait and the supervisor's reminder both tell of it.
// kit: tree
#include "guest.h"
#include <signal.h>
#include <sys/wait.h>

enum { ROUNDS = 12 };

static volatile sig_atomic_t told;

static void on_child(int signal)
{
    (void)signal;
    told++;
}

static int status_of(pid_t pid)
{
    int status;
    pid_t got;
    while ((got = waitpid(pid, &status, 0)) < 0)
        CHECK(errno == EINTR);
    CHECK(got == pid && WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Has one child, which is the only one that it hears of. */
static void has_one(void)
{
    struct sigaction action = {.sa_handler = on_child};
    int line[2], status;
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
    pid_t got;
    while ((got = waitpid(-1, &status, 0)) < 0)
        CHECK(errno == EINTR);
    CHECK(got == child && WIFEXITED(status) && WEXITSTATUS(status) == 5);
    CHECK(waitpid(-1, &status, 0) < 0 && errno == ECHILD);
    if (told != 1)
        fprintf(stderr, "told of %d children\n", (int)told);
    CHECK(told == 1);
    _exit(7);
}

int main(void)
{
    for (int r = 0; r < ROUNDS; r++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
            has_one();
        CHECK(status_of(pid) == 7);
    }
    return guest_ok();
}
