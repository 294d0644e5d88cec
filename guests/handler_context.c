// Shows: what a handler finds in its context: the registers at the system call, stack, mask and vector state; and what it changes there counts.
// Breaks if: a handler that is run in a door is shown an empty context, or the door goes on as if nothing had been changed.
#include "guest.h"
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>

enum { ROUNDS = 40 };

enum { LOOK, CHANGE, JUMP };

static volatile int what;
static volatile long handled;
static long long seen[23];
static char *above;
extern const char after_call[], elsewhere[];

static void handler(int signal, siginfo_t *info, void *arg)
{
    ucontext_t *context = (ucontext_t *)arg;
    greg_t *regs = context->uc_mcontext.gregs;
    fpregset_t state = context->uc_mcontext.fpregs;
    unsigned int mxcsr;
    unsigned short word;
    char here;

    CHECK(signal == SIGUSR1 && info->si_signo == SIGUSR1);
    memcpy(seen, regs, sizeof seen);
    CHECK((char *)regs[REG_RSP] > &here && (char *)regs[REG_RSP] < above);
    CHECK(context->uc_link == NULL && sigismember(&context->uc_sigmask, SIGUSR2) == 1);
    CHECK(sigismember(&context->uc_sigmask, SIGUSR1) == 0);
    CHECK((regs[REG_CSGSFS] & 0xffff) == 0x33);
    /* The state of what was interrupted lies there, and the handler begins with that of a new program. */
    __asm__ volatile("stmxcsr %0; fnstcw %1" : "=m"(mxcsr), "=m"(word));
    CHECK(mxcsr == 0x1f80 && word == 0x37f);
    if (state->mxcsr == 0x5f80)
        CHECK(state->cwd == 0x77f && state->_xmm[7].element[0] == 0x12345678);
    if (what == CHANGE) {
        regs[REG_RBX] = 71;
        regs[REG_R12] = 72;
        regs[REG_R15] = 75;
        state->_xmm[7].element[0] = 77;
    } else if (what == JUMP) {
        regs[REG_RIP] = (greg_t)elsewhere;
        regs[REG_RDI] = 81;
        regs[REG_R8] = 82;
        sigaddset(&context->uc_sigmask, SIGWINCH);
    }
    __asm__ volatile("fninit; fldpi; pcmpeqd %%xmm7, %%xmm7; pxor %%xmm0, %%xmm0" ::: "xmm0", "xmm7");
    handled++;
}

static unsigned short floating_word(void)
{
    unsigned short word;

    __asm__ volatile("fnstcw %0" : "=m"(word));
    return word;
}

/* A system call with every register known; what it leaves goes to `out`. */
__attribute__((noinline)) static void call(long pid, long tid, long long out[8])
{
    __asm__ volatile(
        "push %%rbp\n push %[out]\n"
        "mov $11, %%ebx\n mov $12, %%r12d\n mov $13, %%r13d\n mov $14, %%r14d\n mov $15, %%r15d\n mov $16, %%ebp\n"
        "mov $18, %%r8d\n mov $19, %%r9d\n mov $20, %%r10d\n"
        "mov $0x12345678, %%ecx\n movd %%ecx, %%xmm7\n"
        "syscall\n"
        ".globl after_call\nafter_call:\n"
        "jmp 1f\n"
        ".globl elsewhere\nelsewhere:\n"
        "mov $-1, %%rax\n"
        "1: mov (%%rsp), %%rcx\n"
        "mov %%rax, (%%rcx)\n mov %%rbx, 8(%%rcx)\n mov %%r12, 16(%%rcx)\n mov %%r15, 24(%%rcx)\n"
        "mov %%rdi, 32(%%rcx)\n mov %%r8, 40(%%rcx)\n movd %%xmm7, %%eax\n mov %%rax, 48(%%rcx)\n mov %%rbp, 56(%%rcx)\n"
        "pop %[out]\n pop %%rbp\n"
        : [out] "+c"(out), "+D"(pid), "+S"(tid)
        : "a"((long)SYS_tgkill), "d"((long)SIGUSR1)
        : "rbx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm7", "memory", "cc");
}

int main(void)
{
    struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };
    long long out[8];
    sigset_t block, now;
    unsigned int mxcsr = 0x5f80, found;
    unsigned short word = 0x77f;
    char here;
    ucontext_t own;

    above = (char *)((uintptr_t)&here + 4096);
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    sigemptyset(&block);
    sigaddset(&block, SIGUSR2);
    for (int r = 0; r < ROUNDS; r++) {
        CHECK(sigprocmask(SIG_SETMASK, &block, NULL) == 0);
        /* Through libc. */
        what = LOOK;
        CHECK(raise(SIGUSR1) == 0 && handled == r * 4 + 1);
        CHECK(seen[REG_RIP] != 0);
        __asm__ volatile("ldmxcsr %0; fldcw %1" ::"m"(mxcsr), "m"(word));
        /* By an instruction of the program's own. */
        call(getpid(), syscall(SYS_gettid), out);
        CHECK(handled == r * 4 + 2 && out[0] == 0 && out[1] == 11 && out[2] == 12 && out[3] == 15 && out[7] == 16);
        CHECK(out[4] == getpid() && out[5] == 18 && out[6] == 0x12345678);
        CHECK((const char *)seen[REG_RIP] == after_call && seen[REG_RAX] == 0 && seen[REG_RBX] == 11);
        CHECK(seen[REG_R12] == 12 && seen[REG_R13] == 13 && seen[REG_R14] == 14 && seen[REG_R15] == 15);
        CHECK(seen[REG_RBP] == 16 && seen[REG_R8] == 18 && seen[REG_R9] == 19 && seen[REG_R10] == 20);
        CHECK(seen[REG_RDI] == getpid() && seen[REG_RDX] == SIGUSR1 && seen[REG_RCX] == seen[REG_RIP]);
        what = CHANGE;
        call(getpid(), syscall(SYS_gettid), out);
        CHECK(handled == r * 4 + 3 && out[0] == 0 && out[1] == 71 && out[2] == 72 && out[3] == 75);
        CHECK(out[6] == 77 && out[7] == 16);
        what = JUMP;
        call(getpid(), syscall(SYS_gettid), out);
        CHECK(handled == r * 4 + 4 && out[0] == -1 && out[1] == 11 && out[4] == 81 && out[5] == 82);
        CHECK(out[6] == 0x12345678);
        CHECK(sigprocmask(SIG_BLOCK, NULL, &now) == 0);
        CHECK(sigismember(&now, SIGWINCH) == 1 && sigismember(&now, SIGUSR2) == 1 && sigismember(&now, SIGUSR1) == 0);
        /* Nobody has touched the control words. */
        guest_pause_us(700);
        __asm__ volatile("stmxcsr %0" : "=m"(found));
        CHECK(found == mxcsr && floating_word() == word && getcontext(&own) == 0);
        CHECK((own.uc_mcontext.fpregs->cwd) == word && own.uc_mcontext.fpregs->mxcsr == mxcsr);
        mxcsr = 0x1f80, word = 0x37f;
        __asm__ volatile("ldmxcsr %0; fldcw %1" ::"m"(mxcsr), "m"(word));
        mxcsr = 0x5f80, word = 0x77f;
    }
    printf("handled %ld\n", handled);
    return guest_ok();
}
