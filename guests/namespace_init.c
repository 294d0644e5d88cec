// Shows: the first process of a pid namespace is not ended by signals that it sends itself and does not catch; its number is 1, and
//        what it starts ends with it.
// Breaks if: a default action that the runtime carries out in the kernel's place ends who is exempt from it.
// kit: no-kill a process of another pid namespace has no standby
// kit: allow unprotected unshare costs the standby, and a new one is made
// kit: no-record the recording ends at the call that cannot be replayed, and says so
#include "guest.h"
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

static const int fatal[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGALRM };
static volatile sig_atomic_t handled;

static void handle(int signal)
{
    (void)signal;
    handled++;
}

static void begin(void)
{
    RETURNS(getpid(), 1);
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++) {
        CHECK(kill(getpid(), fatal[i]) == 0);
        CHECK(raise(fatal[i]) == 0);
    }
    CHECK(signal(SIGUSR2, handle) != SIG_ERR);
    CHECK(kill(getpid(), SIGUSR2) == 0 && handled == 1);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        for (;;)
            pause();
    _exit(55);
}

int main(void)
{
    int status;

    for (int r = 0; r < 4; r++) {
        /* Each in a child: who has made a namespace makes all later children in it. */
        pid_t maker = fork();
        CHECK(maker >= 0);
        if (maker == 0) {
            if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0)
                _exit(55);
            pid_t first = fork();
            CHECK(first >= 0);
            if (first == 0)
                begin();
            CHECK(waitpid(first, &status, 0) == first && WIFEXITED(status));
            _exit(WEXITSTATUS(status));
        }
        CHECK(waitpid(maker, &status, 0) == maker && WIFEXITED(status));
        RETURNS(WEXITSTATUS(status), 55);
        guest_pause_us(20000);
    }
    return guest_ok();
}
