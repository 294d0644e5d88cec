// Shows: a program that lives with faults: a write barrier (mprotect in the handler) and recovery by siglongjmp.
// Breaks if: a fault of the guest's own making is taken for a death, or is not delivered in place.
#include "guest.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

enum { PAGES = 8, PAGE = 4096, ROUNDS = 60 };

static char *barrier;
static sigjmp_buf back;
static volatile sig_atomic_t opened, recovered;

static void handler(int signal, siginfo_t *info, void *context)
{
    char *at = (char *)info->si_addr;

    (void)signal;
    (void)context;
    if (at >= barrier && at < barrier + PAGES * PAGE) {
        if (mprotect((void *)((uintptr_t)at & ~(uintptr_t)(PAGE - 1)), PAGE, PROT_READ | PROT_WRITE) != 0)
            _exit(1);
        opened++;
        return; /* the store is tried again and succeeds */
    }
    recovered++;
    siglongjmp(back, 1);
}

int main(void)
{
    struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };
    char *forbidden = (char *)mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    barrier = (char *)mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(forbidden != MAP_FAILED && barrier != MAP_FAILED && sigaction(SIGSEGV, &action, NULL) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        CHECK(mprotect(barrier, PAGES * PAGE, PROT_READ) == 0);
        for (int p = 0; p < PAGES; p++) {
            ((volatile char *)barrier)[p * PAGE + r] = (char)(r + p);
            CHECK(opened == r * PAGES + p + 1);
        }
        if (sigsetjmp(back, 1) == 0) {
            ((volatile char *)forbidden)[r] = 1;
            guest_fail(__FILE__, __LINE__, "the store faults", 0);
        }
        CHECK(recovered == r + 1 && barrier[PAGE + r] == (char)(r + 1));
        guest_pause_us(400);
    }
    printf("opened %d, recovered %d\n", (int)opened, (int)recovered);
    return guest_ok();
}
