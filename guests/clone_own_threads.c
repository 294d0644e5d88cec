// Shows: threads made by clones of the program's own run and get signals: from libc's clone and from an instruction, on their maker's thread pointer or another.
// Breaks if: the runtime takes every thread pointer for libc's, or a trapped clone goes on in the runtime's frames.
// kit: no-kill a thread that the C library does not know is in no copy
// kit: no-record the recording ends with such a thread
// kit: allow unprotected a thread that the C library does not know is in no copy
// kit: allow standby_lost as above
#include "guest.h"

#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { STACK = 256 << 10, ROUNDS = 3 };

#define THREAD (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM)
#define TOLD (CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID)

static int number;
static int signalled;
static int steps;
static long other_pointer[64];

/* No function of libc's: a thread of one's own has no place there. */
static long call(long nr, long a, long b, long c, long d)
{
    register long r10 __asm__("r10") = d;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "0"(nr), "D"(a), "S"(b), "d"(c), "r"(r10)
                     : "rcx", "r11", "memory");
    return result;
}

static void on_signal(int which)
{
    (void)which;
    __atomic_store_n(&signalled, 1, __ATOMIC_SEQ_CST);
}

static void work(void)
{
    struct timespec pause = {0, 200000};

    __atomic_add_fetch(&steps, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < 20; i++)
        call(SYS_nanosleep, (long)&pause, 0, 0, 0);
    while (!__atomic_load_n(&signalled, __ATOMIC_SEQ_CST))
        call(SYS_nanosleep, (long)&pause, 0, 0, 0);
    __atomic_add_fetch(&steps, 1, __ATOMIC_SEQ_CST);
}

static int by_library(void *arg)
{
    (void)arg;
    work();
    call(SYS_exit, 0, 0, 0, 0);
    return 0;
}

/* As run-time libraries without libc do it: the child goes on behind the instruction, on its own stack and with live registers. */
static long by_instruction(long flags, void *top, long pointer)
{
    register long r10 __asm__("r10") = (long)&number;
    register long r8 __asm__("r8") = pointer;
    register void (*r9)(void) __asm__("r9") = work;
    register long r12 __asm__("r12") = SYS_exit;
    long result;

    __asm__ volatile("syscall\n"
                     "test %%rax, %%rax\n"
                     "jnz 1f\n"
                     "xor %%ebp, %%ebp\n"
                     "call *%%r9\n"
                     "mov %%r12, %%rax\n"
                     "xor %%edi, %%edi\n"
                     "syscall\n"
                     "hlt\n"
                     "1:"
                     : "=a"(result)
                     : "0"(SYS_clone), "D"(flags), "S"(top), "d"(&number), "r"(r10), "r"(r8), "r"(r9), "r"(r12)
                     : "rcx", "r11", "memory");
    return result;
}

static void await_end(void)
{
    int seen;

    while ((seen = __atomic_load_n(&number, __ATOMIC_SEQ_CST)) != 0)
        syscall(SYS_futex, &number, FUTEX_WAIT, seen, NULL, NULL, 0);
}

int main(void)
{
    char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct sigaction action = {.sa_handler = on_signal};

    CHECK(stack != MAP_FAILED);
    ZERO(sigaction(SIGUSR1, &action, NULL));
    for (int r = 0; r < ROUNDS * 3; r++) {
        long made;

        __atomic_store_n(&signalled, 0, __ATOMIC_SEQ_CST);
        steps = 0;
        if (r % 3 == 0)
            made = clone(by_library, stack + STACK, THREAD | TOLD, NULL, &number, NULL, &number);
        else if (r % 3 == 1)
            made = by_instruction(THREAD | TOLD, stack + STACK, 0);
        else
            made = by_instruction(THREAD | TOLD | CLONE_SETTLS, stack + STACK, (long)&other_pointer[32]);
        CHECK(made > 0);
        while (__atomic_load_n(&steps, __ATOMIC_SEQ_CST) == 0)
            guest_pause_us(100);
        ZERO(syscall(SYS_tgkill, getpid(), made, SIGUSR1));
        await_end();
        CHECK(steps == 2);
    }
    for (int i = 0; i < 2; i++) {
        int status;
        long child = syscall(SYS_clone, CLONE_SETTLS | SIGCHLD, 0, 0, 0, i == 0 ? 0 : (long)&other_pointer[32]);
        CHECK(child >= 0);
        if (child == 0) {
            call(SYS_getppid, 0, 0, 0, 0);
            call(SYS_exit_group, 77, 0, 0, 0);
        }
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 77);
    }
    return guest_ok();
}
