// Shows: a child signals its parent, the program's first process, again and again: each signal is accepted, and the last one comes.
// Breaks if: whoever signals the first process between two of its copies is told that there is none of that number.
// kit: tree
#include "guest.h"
#include <signal.h>
#include <sys/wait.h>

enum { ROUNDS = 3000 };

static volatile sig_atomic_t done;

static void on_signal(int signal)
{
    done |= signal == SIGUSR2;
}

int main(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    pid_t parent = getpid();
    int status;

    CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && sigaction(SIGUSR2, &action, NULL) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        for (int r = 0; r < ROUNDS; r++) {
            CHECK(kill(parent, 0) == 0);
            CHECK(kill(parent, SIGUSR1) == 0);
            if (r % 16 == 0)
                guest_pause_us(200);
        }
        CHECK(kill(parent, SIGUSR2) == 0);
        _exit(3);
    }
    while (!done)
        guest_pause_us(300);
    while (waitpid(child, &status, 0) < 0)
        CHECK(errno == EINTR);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    return guest_ok();
}
