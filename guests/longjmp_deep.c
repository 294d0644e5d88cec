// Shows: setjmp and longjmp out of deep calls and out of a signal handler (sigsetjmp restores the mask).
// Breaks if: the guest-or-runtime guard stays raised, or an event begun in the abandoned frames stays open.
#include "guest.h"
#include <setjmp.h>
#include <signal.h>

enum { THREADS = 3, ROUNDS = 60 };

static __thread sigjmp_buf back;
static __thread jmp_buf deep;

static void handler(int signal)
{
    (void)signal;
    siglongjmp(back, 1);
}

static void __attribute__((noinline)) descend(int depth, int value)
{
    volatile char frame[128];

    frame[0] = (char)depth;
    if (value < 0)
        return;
    if (depth == 0)
        longjmp(deep, value);
    descend(depth - 1, value);
    frame[1] = frame[0];
}

static void *run(void *arg)
{
    volatile long jumps = 0;

    (void)arg;
    for (volatile int r = 1; r <= ROUNDS; r++) {
        int value = setjmp(deep);
        if (value == 0)
            descend(20, r);
        CHECK(value == r);
        if (sigsetjmp(back, 1) == 0) {
            raise(SIGUSR1);
            guest_fail(__FILE__, __LINE__, "the handler jumps away", 0);
        }
        sigset_t mask;
        ZERO(pthread_sigmask(SIG_BLOCK, NULL, &mask));
        CHECK(sigismember(&mask, SIGUSR1) == 0);
        jumps += 2;
        guest_pause_us(300);
    }
    return guest_ptr(jumps);
}

int main(void)
{
    struct sigaction action = { .sa_handler = handler };
    pthread_t t[THREADS];
    long jumps = 0;

    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, NULL);
    for (int i = 0; i < THREADS; i++)
        jumps += guest_num(guest_join(t[i]));
    printf("jumps %ld\n", jumps);
    return guest_ok();
}
