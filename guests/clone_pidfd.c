// Shows: a child made by clone or clone3 with CLONE_PIDFD, with a copy of the memory or, as vfork does, on its parent's
// memory and stack: number and descriptor are where the parent wanted them, and it waits by the descriptor.
// Breaks if: a copy does not get what the kernel stored for the parent, or does not know whom such a descriptor means.
// kit: tree
#include "guest.h"
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { ROUNDS = 4, BY_FD = 3, NEW = 0x1000 };

struct clone_words {
    uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
};

static char *const again[] = {"/bin/sh", "-c", "sleep 0.05; exit 9", NULL};

/* The child of the second kind does nothing but this: one call of its own instructions. */
static __attribute__((noinline)) long vfork_and_exec(int *pidfd)
{
    register void *fourth __asm__("r10") = NULL;
    register void *path __asm__("r8") = (void *)again[0];
    register void *args __asm__("r9") = (void *)again;
    long result = SYS_clone;

    __asm__ volatile("syscall\n\t"
                     "test %%rax, %%rax\n\tjnz 1f\n\t"
                     "mov %%r8, %%rdi\n\tmov %%r9, %%rsi\n\txor %%edx, %%edx\n\tmov $59, %%eax\n\tsyscall\n\t"
                     "mov $60, %%eax\n\tmov $77, %%edi\n\tsyscall\n\tud2\n"
                     "1:"
                     : "+a"(result), "+r"(fourth), "+r"(path), "+r"(args)
                     : "D"((long)(CLONE_VM | CLONE_VFORK | NEW | SIGCHLD)), "S"(0L), "d"(pidfd)
                     : "rcx", "r11", "memory", "cc");
    return result;
}

static void wait_for(long pid, int fd, int code)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    siginfo_t told = {0};

    CHECK(pid > 0 && fd >= 0);
    CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC);
    while (poll(&ready, 1, -1) != 1)
        CHECK(errno == EINTR);
    CHECK(waitid((idtype_t)BY_FD, (id_t)fd, &told, WEXITED) == 0);
    CHECK(told.si_pid == pid && told.si_code == CLD_EXITED && told.si_status == code);
    CHECK(close(fd) == 0);
    CHECK(waitpid((pid_t)pid, NULL, 0) == -1 && errno == ECHILD);
}

static void live_a_little(int code)
{
    for (int pause = 0; pause < 5; pause++)
        guest_pause_us(6000);
    _exit(code);
}

int main(void)
{
    for (int round = 0; round < ROUNDS; round++) {
        int fd = -1, number = -1;
        long pid = syscall(SYS_clone, NEW | SIGCHLD, NULL, &fd, NULL, NULL);
        if (pid == 0)
            live_a_little(3 + round);
        wait_for(pid, fd, 3 + round);

        struct clone_words words = {.flags = NEW | CLONE_PARENT_SETTID,
                                    .pidfd = (uintptr_t)&fd,
                                    .parent_tid = (uintptr_t)&number,
                                    .exit_signal = SIGCHLD};
        fd = -1;
        pid = syscall(SYS_clone3, &words, sizeof words);
        if (pid == 0)
            live_a_little(20 + round);
        CHECK(number == pid);
        wait_for(pid, fd, 20 + round);

        fd = -1;
        pid = vfork_and_exec(&fd);
        wait_for(pid, fd, 9);
    }
    return guest_ok();
}
