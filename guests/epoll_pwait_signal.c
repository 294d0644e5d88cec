// Shows: epoll_pwait opens the signal mask for the wait alone: a blocked signal arrives in it, EINTR, and nowhere else.
// Breaks if: the mask in force during the wait is not that of the call, or a signal before it is slept through.
#include "guest.h"
#include <signal.h>
#include <sys/epoll.h>

enum { ROUNDS = 100 };

static volatile sig_atomic_t caught;

static void handler(int signal)
{
    (void)signal;
    caught++;
}

int main(void)
{
    struct sigaction action = { .sa_handler = handler };
    struct epoll_event ready;
    sigset_t block, open_mask;
    int set = epoll_create1(0);

    CHECK(set >= 0 && sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(sigemptyset(&block) == 0 && sigaddset(&block, SIGUSR1) == 0);
    CHECK(sigprocmask(SIG_BLOCK, &block, &open_mask) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        CHECK(raise(SIGUSR1) == 0);
        guest_pause_us(200);
        CHECK(caught == r);
        FAILS(epoll_pwait(set, &ready, 1, -1, &open_mask), EINTR);
        CHECK(caught == r + 1);
        CHECK(epoll_pwait(set, &ready, 1, 0, &block) == 0);
    }
    printf("caught %d\n", (int)caught);
    return guest_ok();
}
