// Shows: a child that was there before its parent failed over executes something, which signals the parent by its number.
// Breaks if: a new image, whose parent is the supervisor for the kernel, takes the parent's number for the kernel's.
// kit: tree
#include "guest.h"
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

enum { ROUNDS = 4 };

static volatile sig_atomic_t heard;
static void hear(int number) { (void)number; heard++; }

int main(int argc, char **argv)
{
    int status;

    if (argc == 2) {
        CHECK(kill(atoi(argv[1]), SIGUSR1) == 0);
        return 0;
    }
    signal(SIGUSR1, hear);
    for (int r = 0; r < ROUNDS; r++) {
        char number[16];

        fflush(stdout);
        snprintf(number, sizeof number, "%d", getpid());
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            for (int i = 0; i < 40; i++)
                guest_pause_us(2000);
            execl("/proc/self/exe", "tree_exec_signals_parent", number, (char *)NULL);
            _exit(99);
        }
        while (waitpid(pid, &status, 0) < 0)
            CHECK(errno == EINTR);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        CHECK(heard == r + 1);
    }
    return guest_ok();
}
