// Shows: system calls by int 0x80, with the numbers and registers of 32-bit programs; no register but rax changes.
// Breaks if: such a number is taken for the 64-bit call of that number, or the instruction costs more than a standby.
// kit: allow unprotected such a call costs the standby, and a new one is made
// kit: no-record the recording ends at the call that cannot be replayed, and says so
#include "guest.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { WRITE = 4, GETPID = 20, CLOSE = 6, ROUNDS = 90, EVERY = 30 };

static long call(long number, long first, long second, long third)
{
    register long a asm("r8") = 8, b asm("r9") = 9, c asm("r10") = 10, d asm("r11") = 11;
    long result, rcx = second, rdx = third, rbx = first;

    asm volatile("int $0x80" : "=a"(result), "+b"(rbx), "+c"(rcx), "+d"(rdx), "+r"(a), "+r"(b), "+r"(c), "+r"(d)
                 : "0"(number), "S"(0L), "D"(0L) : "memory", "cc");
    CHECK(rbx == first && rcx == second && rdx == third);
    return result;
}

/* Asked of a child: it is the first that has no standby any more. */
static int has_them(void)
{
    int status;
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (pid == 0)
        _exit(call(GETPID, 0, 0, 0) == getpid() ? 0 : 1);
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFSIGNALED(status) ? WTERMSIG(status) == SIGSEGV : status == 0);
    return !WIFSIGNALED(status);
}

int main(void)
{
    int ends[2], status;
    uint64_t sum = 0;
    char got;

    if (!has_them()) {
        puts("this kernel has no such calls");
        return guest_ok();
    }
    char *low = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    CHECK(low != MAP_FAILED && (uintptr_t)low < UINT32_MAX && pipe(ends) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        if (r % EVERY == EVERY - 1) {
            *low = (char)r;
            RETURNS(call(WRITE, ends[1], (long)(uintptr_t)low, 1), 1);
            RETURNS(call(GETPID, 0, 0, 0), getpid());
            RETURNS(call(CLOSE, -1, 0, 0), -EBADF);
        } else {
            got = (char)r;
            CHECK(write(ends[1], &got, 1) == 1);
        }
        CHECK(read(ends[0], &got, 1) == 1 && got == (char)r);
        sum = sum * 31 + (uint64_t)got;
        guest_pause_us(2000);
    }
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        call(1, 7, 0, 0); /* exit */
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    printf("sum %llu\n", (unsigned long long)sum);
    return guest_ok();
}
