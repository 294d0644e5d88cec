// Shows: system calls by the guest's own instruction, past libc: write, read, getpid, gettid, clock_gettime, futex, lseek.
// Breaks if: only libc's sites are entered through a door: a standby's raw write then reaches the shared table.
// kit: allow unprotected it waits by futex calls of its own: turns begin with a new standby
#include "guest.h"
#include <linux/futex.h>
#include <sys/syscall.h>

enum { THREADS = 3, ROUNDS = 60 };

static long raw(long number, long a, long b, long c, long d)
{
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = 0;
    long result;

    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory");
    return result;
}

static void *run(void *arg)
{
    int ends[2], word = 5;
    struct timespec t;
    long bytes = 0, last = 0;

    (void)arg;
    CHECK(raw(SYS_pipe2, (long)ends, O_CLOEXEC, 0, 0) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        char text[64], back[64];
        long n = snprintf(text, sizeof text, "round %d of a raw write", r);
        CHECK(raw(SYS_write, ends[1], (long)text, n, 0) == n);
        guest_pause_us(300);
        CHECK(raw(SYS_read, ends[0], (long)back, sizeof back, 0) == n && memcmp(text, back, (size_t)n) == 0);
        CHECK(raw(SYS_getpid, 0, 0, 0, 0) == getpid() && raw(SYS_gettid, 0, 0, 0, 0) == gettid());
        CHECK(raw(SYS_clock_gettime, CLOCK_MONOTONIC, (long)&t, 0, 0) == 0);
        CHECK(t.tv_sec * 1000000000L + t.tv_nsec >= last);
        last = t.tv_sec * 1000000000L + t.tv_nsec;
        CHECK(raw(SYS_futex, (long)&word, FUTEX_WAIT_PRIVATE, 4, 0) == -EAGAIN);
        CHECK(raw(SYS_lseek, ends[0], 0, SEEK_CUR, 0) == -ESPIPE);
        CHECK(raw(SYS_close, -1, 0, 0, 0) == -EBADF);
        bytes += n;
    }
    CHECK(raw(SYS_close, ends[0], 0, 0, 0) == 0 && raw(SYS_close, ends[1], 0, 0, 0) == 0);
    return guest_ptr(bytes);
}

int main(void)
{
    pthread_t t[THREADS];
    long bytes = 0;

    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, NULL);
    for (int i = 0; i < THREADS; i++)
        bytes += guest_num(guest_join(t[i]));
    printf("bytes %ld\n", bytes);
    return guest_ok();
}
