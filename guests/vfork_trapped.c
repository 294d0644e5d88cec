// Shows: vfork, and clone with CLONE_VFORK, by an instruction of the program's own: the child runs on its parent's stack,
// and the parent goes on behind the same instruction.
// Breaks if: the frames of the gate in which the parent waits are what the child has left of them.
#include "guest.h"
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>

enum { ROUNDS = 15, STACK = 65536 };

/* In the child: writes over the stack below its caller's frame. */
static __attribute__((noinline)) void scribble(long seed)
{
    volatile char junk[8192];

    for (size_t i = 0; i < sizeof junk; i++)
        junk[i] = (char)(seed + 0x55);
}

/* The call, all that the child does, and in the parent a look at registers that a call keeps. */
static __attribute__((noinline)) long make_child(long nr, long flags, long code)
{
    register void (*function)(long) __asm__("r8") = scribble;
    long result = nr, marks;

    __asm__ volatile("mov $11, %%r12\n\tmov $12, %%r13\n\tmov $13, %%r14\n\tmov $14, %%r15\n\t"
                     "syscall\n\t"
                     "test %%rax, %%rax\n\tjnz 1f\n\t"
                     "mov %%rdx, %%rbx\n\tmov %%rdx, %%rdi\n\t"
                     "lea -128(%%rsp), %%rsp\n\tand $-16, %%rsp\n\tcall *%%r8\n\t"
                     "mov %%rbx, %%rdi\n\tmov $60, %%eax\n\tsyscall\n\tud2\n"
                     "1:\tlea -50(%%r12, %%r13), %1\n\tadd %%r14, %1\n\tadd %%r15, %1"
                     : "+a"(result), "=&b"(marks), "+r"(function)
                     : "D"(flags), "S"(0L), "d"(code)
                     : "rcx", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "memory", "cc");
    CHECK(marks == 0);
    return result;
}

static void make_children(int round)
{
    long code = round + 3, flags = CLONE_VM | CLONE_VFORK | SIGCHLD;
    int status;

    for (int kind = 0; kind < 2; kind++) {
        long pid = make_child(kind ? SYS_clone : SYS_vfork, flags, code);

        CHECK(pid > 0);
        CHECK(waitpid((pid_t)pid, &status, 0) == pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == code);
    }
}

static ucontext_t home, coroutine;

static void on_coroutine(void)
{
    for (int round = 0; round < ROUNDS; round++) {
        make_children(round);
        CHECK(swapcontext(&coroutine, &home) == 0);
    }
}

int main(void)
{
    CHECK(getcontext(&coroutine) == 0);
    coroutine.uc_stack.ss_sp = malloc(STACK);
    coroutine.uc_stack.ss_size = STACK;
    coroutine.uc_link = &home;
    makecontext(&coroutine, on_coroutine, 0);
    for (int round = 0; round < ROUNDS; round++) {
        make_children(round);
        CHECK(swapcontext(&home, &coroutine) == 0);
        guest_pause_us(5000);
    }
    puts("ok");
    return 0;
}
