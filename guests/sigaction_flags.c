// Shows: SA_NODEFER, SA_RESETHAND, sa_mask, SIG_IGN that discards what waits, and sigaction's answer of what was set before.
// Breaks if: a flag is known to the dead primary only: a handler nests that must not, or stays that must go.
#include "guest.h"
#include <signal.h>

enum { ROUNDS = 80 };

static volatile sig_atomic_t depth, deepest, runs, others;

static void on_first(int signal)
{
    depth++;
    if (depth > deepest)
        deepest = depth;
    if (++runs % 3 != 0)
        raise(signal);
    depth--;
}

static void on_other(int signal)
{
    (void)signal;
    CHECK(depth == 0);
    others++;
}

int main(void)
{
    struct sigaction nest = { .sa_handler = on_first, .sa_flags = SA_NODEFER }, flat = { .sa_handler = on_first };
    struct sigaction once = { .sa_handler = on_other, .sa_flags = (int)SA_RESETHAND }, told;
    struct sigaction ignored = { .sa_handler = SIG_IGN }, other = { .sa_handler = on_other };
    sigset_t block, before, waits;

    sigaddset(&flat.sa_mask, SIGUSR2);
    CHECK(sigaction(SIGUSR2, &other, NULL) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        deepest = runs = 0;
        CHECK(sigaction(SIGUSR1, &nest, NULL) == 0 && raise(SIGUSR1) == 0);
        CHECK(runs == 3 && deepest == 3);
        deepest = runs = 0;
        CHECK(sigaction(SIGUSR1, &flat, &told) == 0 && told.sa_handler == on_first && (told.sa_flags & SA_NODEFER));
        CHECK(raise(SIGUSR1) == 0 && runs == 3 && deepest == 1);
        CHECK(sigaction(SIGWINCH, &once, NULL) == 0 && raise(SIGWINCH) == 0);
        CHECK(sigaction(SIGWINCH, NULL, &told) == 0 && told.sa_handler == SIG_DFL);
        CHECK(raise(SIGWINCH) == 0);

        sigemptyset(&block);
        sigaddset(&block, SIGUSR2);
        CHECK(sigprocmask(SIG_BLOCK, &block, &before) == 0 && raise(SIGUSR2) == 0);
        CHECK(sigpending(&waits) == 0 && sigismember(&waits, SIGUSR2) == 1 && !sigismember(&waits, SIGUSR1));
        CHECK(sigaction(SIGUSR2, &ignored, NULL) == 0);
        CHECK(sigpending(&waits) == 0 && sigismember(&waits, SIGUSR2) == 0);
        CHECK(sigaction(SIGUSR2, &other, &told) == 0 && told.sa_handler == SIG_IGN);
        CHECK(sigprocmask(SIG_SETMASK, &before, NULL) == 0 && others == r * 2 + 1);
        CHECK(raise(SIGUSR2) == 0 && others == r * 2 + 2);
        guest_pause_us(700);
    }
    FAILS(sigaction(SIGKILL, &flat, NULL), EINVAL);
    FAILS(sigaction(SIGSTOP, &flat, NULL), EINVAL);
    FAILS(sigaction(65, &flat, NULL), EINVAL);
    printf("others %d\n", (int)others);
    return guest_ok();
}
