// Shows: SIGCHLD has been handled when the wait for that child returns, also of a child that has failed over.
// Breaks if: a wait is told by the roster, and the signal that was to say the same finds nothing to say any more.
// kit: tree
#include "guest.h"
#include <signal.h>
#include <sys/wait.h>

static volatile sig_atomic_t heard;

static void on_child(int signal)
{
    (void)signal;
    heard++;
}

int main(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_child;
    CHECK(sigaction(SIGCHLD, &action, NULL) == 0);
    for (int round = 0; round < 8; round++) {
        int before = heard;
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            struct timespec pause = {0, 2000000};
            for (int i = 0; i < 25; i++)
                nanosleep(&pause, NULL);
            if (round % 2 == 1)
                raise(SIGTERM);
            _exit(round);
        }
        int status = 0;
        pid_t got;
        while ((got = waitpid(child, &status, 0)) == -1 && errno == EINTR) {
        }
        CHECK(got == child);
        // Nothing between the wait and this line could have brought it.
        printf("round %d: %s, status %x\n", round, heard > before ? "heard" : "not heard", status);
    }
    puts("ok");
    return 0;
}
