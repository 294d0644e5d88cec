// Shows: a handler with SA_ONSTACK runs on each thread's alternate stack and nowhere else.
// Breaks if: the alternate stack is not restored in a recreated thread, or the runtime's own takes its place.
#include "guest.h"
#include <signal.h>

enum { THREADS = 3, ROUNDS = 60, SIZE = 65536 };

static __thread char *stack;
static __thread volatile sig_atomic_t on_it;

static void handler(int signal)
{
    char here;

    (void)signal;
    CHECK(&here >= stack && &here < stack + SIZE);
    stack_t now;
    CHECK(sigaltstack(NULL, &now) == 0 && now.ss_sp == stack && (now.ss_flags & SS_ONSTACK));
    on_it++;
}

static void *run(void *arg)
{
    stack_t use = { .ss_size = SIZE }, now, off = { .ss_flags = SS_DISABLE };

    (void)arg;
    stack = (char *)malloc(SIZE);
    use.ss_sp = stack;
    CHECK(sigaltstack(&use, NULL) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        CHECK(raise(SIGUSR1) == 0 && on_it == r + 1);
        CHECK(sigaltstack(NULL, &now) == 0 && now.ss_sp == stack && now.ss_flags == 0);
        guest_pause_us(400);
    }
    CHECK(sigaltstack(&off, NULL) == 0);
    free(stack);
    return guest_ptr(on_it);
}

int main(void)
{
    struct sigaction action = { .sa_handler = handler, .sa_flags = SA_ONSTACK };
    pthread_t t[THREADS];
    long handled = 0;

    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, NULL);
    for (int i = 0; i < THREADS; i++)
        handled += guest_num(guest_join(t[i]));
    printf("handled %ld\n", handled);
    return guest_ok();
}
