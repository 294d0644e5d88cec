// Shows: a parent and its children send each other signals in strict turns, without a pause: with kill, and with sigqueue, whose
//        values are the numbers of the turns.
// Breaks if: a signal in doubt is sent a second time, or lost, after another process has answered it.
// kit: tree
#include "guest.h"
#include <signal.h>
#include <sys/wait.h>

enum { CHILDREN = 3, ROUNDS = 1500 };

static sigset_t both;

/* The next signal must be the one that this turn brings. */
static void await(int round)
{
    siginfo_t info;
    int signal;

    while ((signal = sigwaitinfo(&both, &info)) < 0)
        CHECK(errno == EINTR);
    CHECK(signal == (round % 2 ? SIGUSR1 : SIGRTMIN));
    CHECK(signal == SIGUSR1 || info.si_value.sival_int == round);
}

static void send(pid_t to, int round)
{
    if (round % 2)
        CHECK(kill(to, SIGUSR1) == 0);
    else
        CHECK(sigqueue(to, SIGRTMIN, (union sigval){ .sival_int = round }) == 0);
}

/* A member of the ring: hears its predecessor and tells its successor. */
static void pass_on(pid_t to)
{
    for (int round = 0; round < ROUNDS; round++) {
        await(round);
        send(to, round);
    }
}

int main(void)
{
    pid_t ring[CHILDREN + 1];
    int status;

    sigemptyset(&both);
    sigaddset(&both, SIGUSR1);
    sigaddset(&both, SIGRTMIN);
    ZERO(pthread_sigmask(SIG_BLOCK, &both, NULL));
    ring[0] = getpid();
    for (int c = 1; c <= CHILDREN; c++) {
        ring[c] = fork();
        CHECK(ring[c] >= 0);
        if (ring[c] == 0) {
            pass_on(ring[c - 1]);
            _exit(c);
        }
    }
    for (int round = 0; round < ROUNDS; round++) {
        send(ring[CHILDREN], round);
        await(round);
    }
    for (int c = 1; c <= CHILDREN; c++) {
        CHECK(waitpid(ring[c], &status, 0) == ring[c]);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == c);
    }
    printf("%d in the ring, %d rounds\n", CHILDREN + 1, ROUNDS);
    return guest_ok();
}
