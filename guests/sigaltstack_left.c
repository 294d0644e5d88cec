// Shows: a handler that leaves its alternate stack by siglongjmp leaves it free for the next one, and sigaltstack says what
// the kernel says to stacks that are none.
// Breaks if: whether the stack is in use is a note of ours instead of a look at the stack pointer.
#include "guest.h"
#include <setjmp.h>
#include <signal.h>

enum { ROUNDS = 80, SIZE = 65536 };

static char *stack;
static char *volatile nowhere;
static sigjmp_buf back;
static volatile sig_atomic_t on_it;

static void handler(int signal)
{
    char here;

    (void)signal;
    CHECK(&here >= stack && &here < stack + SIZE);
    on_it++;
    siglongjmp(back, 1);
}

int main(void)
{
    struct sigaction action = { .sa_handler = handler, .sa_flags = SA_ONSTACK };
    stack_t use = { .ss_size = SIZE }, now, small = { .ss_size = 2047 };
    stack_t wrong = { .ss_flags = 4, .ss_size = SIZE };

    stack = (char *)malloc(SIZE);
    use.ss_sp = small.ss_sp = wrong.ss_sp = stack;
    FAILS(sigaltstack(&small, NULL), ENOMEM);
    FAILS(sigaltstack(&wrong, NULL), EINVAL);
    CHECK(sigaltstack(&use, NULL) == 0);
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && sigaction(SIGSEGV, &action, NULL) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        if (sigsetjmp(back, 1) == 0) {
            if (r % 2 == 0)
                CHECK(raise(SIGUSR1) == 0);
            else
                *nowhere = 1;
            CHECK(r < 0);
        }
        CHECK(on_it == r + 1);
        CHECK(sigaltstack(NULL, &now) == 0 && now.ss_sp == stack && now.ss_flags == 0);
        guest_pause_us(500);
    }
    printf("handled %d\n", (int)on_it);
    return guest_ok();
}
