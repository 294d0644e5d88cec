// Shows: signal handlers that run for a while, nested, and on alternate stacks, while a standby is made of the program.
// Breaks if: a handler that is under way at a clone is lost, runs again, or returns to the wrong stack or mask.
#include "guest.h"
#include <signal.h>

enum { THREADS = 3, ROUNDS = 30, SIZE = 65536 };

static __thread char *stack;
static __thread volatile sig_atomic_t outer, inner, depth;

static int on_stack(const char *here) { return here >= stack && here < stack + SIZE; }

static void second(int signal)
{
    char here;

    (void)signal;
    CHECK(on_stack(&here) && depth == 1);
    inner++;
    guest_pause_us(700);
    CHECK(depth == 1);
}

static void first(int signal)
{
    volatile uint64_t local = (uint64_t)outer * 77;
    char here;
    sigset_t now;
    int saved = errno;

    (void)signal;
    CHECK(on_stack(&here) && depth == 0);
    depth = 1;
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &now) == 0 && sigismember(&now, SIGUSR1) && !sigismember(&now, SIGUSR2));
    guest_pause_us(900);
    CHECK(pthread_kill(pthread_self(), SIGUSR2) == 0);
    guest_pause_us(400);
    depth = 0;
    CHECK(local == (uint64_t)outer * 77);
    outer++;
    errno = saved;
}

static void *run(void *arg)
{
    stack_t use = { .ss_size = SIZE }, off = { .ss_flags = SS_DISABLE };
    sigset_t now;

    (void)arg;
    stack = (char *)malloc(SIZE);
    use.ss_sp = stack;
    CHECK(stack != NULL && sigaltstack(&use, NULL) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        char here;
        CHECK(pthread_kill(pthread_self(), SIGUSR1) == 0);
        CHECK(outer == r + 1 && inner == r + 1 && !on_stack(&here));
        CHECK(pthread_sigmask(SIG_SETMASK, NULL, &now) == 0 && !sigismember(&now, SIGUSR1));
        guest_pause_us(300);
    }
    CHECK(sigaltstack(&off, NULL) == 0);
    free(stack);
    return guest_ptr(outer * 1000 + inner);
}

int main(void)
{
    struct sigaction a = { .sa_handler = first, .sa_flags = SA_ONSTACK };
    struct sigaction b = { .sa_handler = second, .sa_flags = SA_ONSTACK };
    pthread_t t[THREADS];

    CHECK(sigaction(SIGUSR1, &a, NULL) == 0 && sigaction(SIGUSR2, &b, NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, NULL);
    for (int i = 0; i < THREADS; i++)
        printf("%ld\n", guest_num(guest_join(t[i])));
    return guest_ok();
}
