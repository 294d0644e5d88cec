// Shows: handlers run once for each raise and pthread_kill, nest for different signals, and respect the mask.
// Breaks if: a handler runs at another place in the standby, or a deferred delivery is dropped or doubled.
#include "guest.h"
#include <signal.h>

enum { THREADS = 3, ROUNDS = 60 };

/* Written by the handler and read by the same thread: no other thread sees them. */
static __thread volatile sig_atomic_t ones, twos, depth, deepest;

static void one(int signal, siginfo_t *info, void *context)
{
    (void)context;
    CHECK(signal == SIGUSR1 && info->si_signo == SIGUSR1 && info->si_pid == getpid());
    ones++;
    if (++depth > deepest)
        deepest = depth;
    raise(SIGUSR2); /* not in this handler's mask: nests */
    depth--;
}

static void two(int signal)
{
    CHECK(signal == SIGUSR2);
    twos++;
    if (++depth > deepest)
        deepest = depth;
    depth--;
}

static void *run(void *arg)
{
    sigset_t set, pending;

    (void)arg;
    CHECK(sigemptyset(&set) == 0 && sigaddset(&set, SIGUSR1) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        CHECK(raise(SIGUSR1) == 0);
        CHECK(ones == 3 * r + 1);
        ZERO(pthread_kill(pthread_self(), SIGUSR1));
        CHECK(ones == 3 * r + 2);
        ZERO(pthread_sigmask(SIG_BLOCK, &set, NULL));
        CHECK(raise(SIGUSR1) == 0 && raise(SIGUSR1) == 0); /* two of them, but only one can be pending */
        CHECK(ones == 3 * r + 2);
        CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGUSR1) == 1);
        guest_pause_us(200);
        ZERO(pthread_sigmask(SIG_UNBLOCK, &set, NULL));
        CHECK(ones == 3 * r + 3);
        guest_pause_us(200);
    }
    CHECK(twos == ones && depth == 0 && deepest == 2);
    return guest_ptr(ones);
}

int main(void)
{
    struct sigaction first = { .sa_sigaction = one, .sa_flags = SA_SIGINFO | SA_RESTART };
    struct sigaction second = { .sa_handler = two, .sa_flags = SA_RESTART };
    pthread_t t[THREADS];
    long sum = 0;

    CHECK(sigaction(SIGUSR1, &first, NULL) == 0);
    CHECK(sigaction(SIGUSR2, &second, NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, NULL);
    for (int i = 0; i < THREADS; i++)
        sum += guest_num(guest_join(t[i]));
    printf("handled %ld\n", sum);
    return guest_ok();
}
