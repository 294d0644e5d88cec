// Shows: system calls by instructions of the program's own, in the shapes that compilers and run-time systems write: a number
// loaded just before, a result compared just behind, on a stack with nothing left, and interrupted by a signal.
// Breaks if: the way into a door writes below such a stack, destroys a register, or goes on at another place than the site.
#include "guest.h"
#include <signal.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

enum { THREADS = 3, ROUNDS = 120, BELOW = 8192 };

long own_call(long number, long a, long b, long c, long d, long e);
long own_pid(void);
long own_call_on(void *stack, long number, long a, long b, long c);

__asm__(".text\n"
        "own_call:\n"
        "  mov %rdi, %rax\n"
        "  mov %rsi, %rdi\n"
        "  mov %rdx, %rsi\n"
        "  mov %rcx, %rdx\n"
        "  mov %r8, %r10\n"
        "  mov %r9, %r8\n"
        "  syscall\n"
        "  cmp $-4095, %rax\n"
        "  jae 1f\n"
        "  ret\n"
        "1: ret\n"
        "own_pid:\n"
        "  mov $39, %eax\n"
        "  syscall\n"
        "  ret\n"
        // The stack ends where it begins: a call may not push a single word.
        "own_call_on:\n"
        "  push %rbx\n"
        "  push %r12\n"
        "  mov %rsp, %rbx\n"
        "  mov %rdi, %rsp\n"
        "  mov %rsi, %rax\n"
        "  mov %rdx, %rdi\n"
        "  mov %rcx, %rsi\n"
        "  mov %r8, %rdx\n"
        "  mov $0x77, %r12d\n"
        "  syscall\n"
        "  cmp $-4095, %rax\n"
        "  jae 2f\n"
        "2: mov %rbx, %rsp\n"
        "  cmp $0x77, %r12d\n"
        "  je 3f\n"
        "  ud2\n"
        "3: pop %r12\n"
        "  pop %rbx\n"
        "  ret\n");

static volatile sig_atomic_t rung;

static void ring(int signal)
{
    (void)signal;
    rung++;
    CHECK(own_call(SYS_getppid, 0, 0, 0, 0, 0) == getppid());
}

static void *run(void *arg)
{
    int ends[2];
    long bytes = 0;
    unsigned char *area = malloc(BELOW + 64);

    (void)arg;
    CHECK(area != NULL && own_call(SYS_pipe2, (long)ends, O_CLOEXEC, 0, 0, 0) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        char text[64], back[64];
        long n = snprintf(text, sizeof text, "round %d of a call of its own", r);

        memset(area, r & 255, BELOW);
        CHECK(own_call(SYS_write, ends[1], (long)text, n, 0, 0) == n);
        if (r % 4 == 0)
            guest_pause_us(300);
        CHECK(own_call_on(area + BELOW, SYS_read, ends[0], (long)back, sizeof back) == n);
        CHECK(memcmp(text, back, (size_t)n) == 0);
        for (int i = 0; i < BELOW; i++)
            CHECK(area[i] == (r & 255));
        CHECK(own_pid() == getpid());
        CHECK(own_call(SYS_close, -1, 0, 0, 0, 0) == -EBADF);
        bytes += n;
    }
    CHECK(own_call(SYS_close, ends[0], 0, 0, 0, 0) == 0 && own_call(SYS_close, ends[1], 0, 0, 0, 0) == 0);
    free(area);
    return guest_ptr(bytes);
}

int main(void)
{
    pthread_t t[THREADS];
    long bytes = 0, child;
    int ends[2], status;
    char byte;
    struct sigaction action = {.sa_handler = ring};
    // Again and again: one that comes before the call is entered would be waited for in vain.
    const struct itimerval often = {{0, 5000}, {0, 5000}}, never = {{0, 0}, {0, 0}};

    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, NULL);
    for (int i = 0; i < THREADS; i++)
        bytes += guest_num(guest_join(t[i]));

    // A handler in a call that waits, from such a site and with such a stack.
    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && pipe(ends) == 0);
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    for (int r = 0; r < 5; r++) {
        int before = rung;
        CHECK(own_call(SYS_read, ends[0], (long)&byte, 1, 0, 0) == -EINTR && rung > before);
    }
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);

    // A child by the program's own call: its parent's copy goes on at the same place.
    child = own_call(SYS_fork, 0, 0, 0, 0, 0);
    if (child == 0) {
        CHECK(own_call(SYS_write, ends[1], (long)"c", 1, 0, 0) == 1);
        own_call(SYS_exit_group, 7, 0, 0, 0, 0);
    }
    CHECK(child > 0 && own_call(SYS_wait4, child, (long)&status, 0, 0, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    CHECK(own_call(SYS_read, ends[0], (long)&byte, 1, 0, 0) == 1 && byte == 'c');

    printf("bytes %ld\n", bytes);
    return guest_ok();
}
