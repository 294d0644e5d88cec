// Shows: a process that a signal ends while others wait for it there (the end of a child, a timer, one that is handled): its parent
// hears of that signal, and of no exit.
// Breaks if: signals that come with the ending one keep it from ending the process, which then exits with 128 and its number.
// kit: tree
// kit: no-kill its processes live for a few milliseconds
#include "guest.h"
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

enum { ROUNDS = 24 };
static const int ENDING[] = { SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGALRM, SIGPIPE, 40 };

static void handle(int number) { (void)number; }

/* What comes with it: its child's end, or signals that are handled. */
static void company(int r, int number)
{
    pid_t pid = getpid();

    if (r % 3 == 0) {
        if (fork() == 0) {
            guest_pause_us(r * 50);
            kill(pid, number);
            _exit(0);
        }
        return;
    }
    signal(SIGWINCH, handle);
    signal(SIGVTALRM, handle);
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    CHECK(sigprocmask(SIG_SETMASK, &all, NULL) == 0);
    CHECK(kill(pid, SIGWINCH) == 0);
    CHECK(kill(pid, number) == 0);
    CHECK(kill(pid, SIGVTALRM) == 0);
    if (r % 3 == 1)
        sigsuspend(&none);
    else
        sigprocmask(SIG_SETMASK, &none, NULL);
}

int main(void)
{
    int status;

    for (int r = 0; r < ROUNDS; r++) {
        int number = ENDING[r % (int)(sizeof ENDING / sizeof *ENDING)];

        fflush(stdout);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            /* Some of them live long enough to be protected. */
            if (r % 2)
                guest_pause_us(r % 8 == 1 ? 60000 : 8000);
            company(r, number);
            for (;;)
                if (r % 4 == 3)
                    getppid();
                else
                    pause();
        }
        CHECK(waitpid(pid, &status, 0) == pid);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != number) {
            printf("round %d: status %x, wanted signal %d\n", r, status, number);
            return 1;
        }
    }
    return guest_ok();
}
