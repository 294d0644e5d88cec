// Shows: handlers of faults: they see and change the registers, run once, nest, run on the alternate stack, and get what others send.
// Breaks if: the runtime's own handler for faults stands in between: a stack without room, a mask or a flag is not what it is natively.
#include "guest.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { ROUNDS = 40, SIZE = 65536 };

static char alternate[SIZE];
static sigjmp_buf back;
static volatile sig_atomic_t runs, got, depth, deepest;
static volatile void *address;
static char *forbidden;

static void skip(int signal, siginfo_t *info, void *arg)
{
    got = signal;
    address = info->si_addr;
    runs++;
    ((ucontext_t *)arg)->uc_mcontext.gregs[REG_RIP] += 2;
    __asm__ volatile("fninit; fldz; fldz" :::);
}

static void on_stack(int signal)
{
    char here;

    (void)signal;
    CHECK(&here >= alternate && &here < alternate + SIZE);
    runs++;
    siglongjmp(back, 1);
}

static void nesting(int signal)
{
    depth++;
    deepest = depth > deepest ? depth : deepest;
    if (depth < 3)
        raise(signal);
    depth--;
    runs++;
}

static void allow(int signal)
{
    (void)signal;
    runs++;
    CHECK(mprotect(forbidden, 4096, PROT_READ | PROT_WRITE) == 0);
}

int main(void)
{
    struct sigaction action = { .sa_sigaction = skip, .sa_flags = SA_SIGINFO | SA_NODEFER }, told;
    struct sigaction once = { .sa_handler = allow, .sa_flags = (int)SA_RESETHAND };
    struct sigaction nest = { .sa_handler = nesting, .sa_flags = SA_NODEFER };
    struct sigaction apart = { .sa_handler = on_stack, .sa_flags = SA_ONSTACK };
    stack_t use = { .ss_sp = alternate, .ss_size = SIZE };
    sigset_t block, waits;
    long double kept;

    forbidden = (char *)mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(forbidden != MAP_FAILED && sigaltstack(&use, NULL) == 0);
    sigemptyset(&block);
    sigaddset(&block, SIGSEGV);
    sigaddset(&block, SIGTRAP);
    for (int r = 0; r < ROUNDS; r++) {
        runs = got = 0;
        CHECK(sigaction(SIGILL, &action, NULL) == 0);
        __asm__ volatile("fldpi\n ud2\n fstpt %0" : "=m"(kept));
        CHECK(runs == 1 && got == SIGILL && kept > 3.14L && kept < 3.15L);
        /* A stack pointer that leads nowhere: no room for the frame is a fault in itself. */
        action.sa_flags |= SA_ONSTACK;
        CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
        action.sa_flags &= ~SA_ONSTACK;
        __asm__ volatile("mov %%rsp, %%rax\n mov $0x800794b90ed0, %%rsp\n ud2\n mov %%rax, %%rsp" ::: "rax");
        CHECK(runs == 2 && got == SIGSEGV);

        /* For once. */
        CHECK(mprotect(forbidden, 4096, PROT_NONE) == 0 && sigaction(SIGSEGV, &once, NULL) == 0);
        *(volatile char *)forbidden = 1;
        CHECK(runs == 3 && sigaction(SIGSEGV, NULL, &told) == 0 && told.sa_handler == SIG_DFL);
        CHECK(mprotect(forbidden, 4096, PROT_NONE) == 0 && sigaction(SIGSEGV, &apart, NULL) == 0);
        if (sigsetjmp(back, 1) == 0)
            *(volatile char *)forbidden = 1;
        CHECK(runs == 4);

        /* Sent, they are signals like others. */
        CHECK(sigaction(SIGTRAP, &nest, NULL) == 0 && raise(SIGTRAP) == 0);
        CHECK(runs == 7 && deepest == 3 && depth == 0);
        deepest = 0;
        CHECK(sigprocmask(SIG_BLOCK, &block, NULL) == 0 && raise(SIGTRAP) == 0 && kill(getpid(), SIGTRAP) == 0);
        guest_pause_us(300);
        CHECK(runs == 7 && sigpending(&waits) == 0 && sigismember(&waits, SIGTRAP) == 1);
        CHECK(sigprocmask(SIG_UNBLOCK, &block, NULL) == 0 && runs >= 10);
        CHECK(signal(SIGSEGV, SIG_IGN) != SIG_ERR && signal(SIGTRAP, SIG_IGN) != SIG_ERR);
        CHECK(kill(getpid(), SIGSEGV) == 0 && raise(SIGTRAP) == 0);
        guest_pause_us(700);
    }
    return guest_ok();
}
