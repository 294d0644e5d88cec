// Shows: system calls need no stack: they are made with the stack pointer at the end of its memory, with a page behind it
// that nobody may touch; calls of libc on a coroutine's stack of one kilobyte leave what lies below it as it was.
// Breaks if: the gate runs on its caller's stack, where a goroutine or a coroutine has a few hundred bytes left.
#include "guest.h"
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>

enum { ROUNDS = 25, PAGE = 4096, STACK = 32768, ROOM = 1024 };

/* A system call with the stack pointer at `sp`, and a word in the red zone above the end, if there is one. */
static long bare(char *sp, long nr, long a, long b, long c, long d)
{
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = 0;
    register char *stack __asm__("rbx") = sp;
    long result;

    __asm__ volatile("xchg %%rbx, %%rsp\n\tsyscall\n\txchg %%rbx, %%rsp"
                     : "=a"(result), "+r"(stack)
                     : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory");
    CHECK(stack == sp);
    return result;
}

/* The lowest address of a page that may be used, behind one that may not. */
static char *brink(void)
{
    char *pages = (char *)mmap(NULL, 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(pages != MAP_FAILED);
    ZERO(mprotect(pages + PAGE, PAGE, PROT_READ | PROT_WRITE));
    memset(pages + PAGE, 0x3c, PAGE);
    return pages + PAGE;
}

static int to[2], back[2];

/* Hands on what comes, with no stack at all. */
static void *relay(void *arg)
{
    char *sp = brink(), byte;

    (void)arg;
    while (bare(sp, SYS_read, to[0], (long)&byte, 1, 0) == 1) {
        byte++;
        RETURNS(bare(sp, SYS_write, back[1], (long)&byte, 1, 0), 1);
    }
    for (int i = 0; i < PAGE; i++)
        CHECK(sp[i] == 0x3c);
    return NULL;
}

static void bare_calls(char *sp)
{
    struct timespec time, pause = { 0, 1000 };
    struct epoll_event event;
    static int word;
    int epoll = epoll_create1(0);
    long file = bare(sp, SYS_openat, AT_FDCWD, (long)"/etc/passwd", O_RDONLY, 0);

    CHECK(file >= 0);
    RETURNS(bare(sp, SYS_close, file, 0, 0, 0), 0);
    RETURNS(bare(sp, SYS_close, file, 0, 0, 0), -EBADF);
    RETURNS(bare(sp, SYS_getpid, 0, 0, 0, 0), getpid());
    RETURNS(bare(sp, SYS_clock_gettime, CLOCK_MONOTONIC, (long)&time, 0, 0), 0);
    RETURNS(bare(sp, SYS_nanosleep, (long)&pause, 0, 0, 0), 0);
    RETURNS(bare(sp, SYS_futex, (long)&word, 1, 1, 0), 0);
    RETURNS(bare(sp, SYS_epoll_wait, epoll, (long)&event, 1, 0), 0);
    RETURNS(bare(sp, SYS_sched_yield, 0, 0, 0, 0), 0);
    close(epoll);
}

static ucontext_t home, coroutine;
static char memory[STACK] __attribute__((aligned(16)));
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static sem_t semaphore;

static void libc_calls(void)
{
    struct timespec time;
    char byte = 0;
    static int pipes[2];

    ZERO(pipe(pipes));
    CHECK(clock_gettime(CLOCK_REALTIME, &time) == 0);
    CHECK(write(pipes[1], &byte, 1) == 1);
    CHECK(read(pipes[0], &byte, 1) == 1);
    ZERO(pthread_mutex_lock(&lock));
    ZERO(pthread_mutex_unlock(&lock));
    ZERO(sem_post(&semaphore));
    ZERO(sem_wait(&semaphore));
    CHECK(getppid() >= 0);
    close(pipes[0]);
    close(pipes[1]);
}

static void on_coroutine(void)
{
    for (;;) {
        libc_calls();
        CHECK(swapcontext(&coroutine, &home) == 0);
    }
}

int main(void)
{
    char *sp = brink(), byte = 0;

    ZERO(pipe(to));
    ZERO(pipe(back));
    ZERO(sem_init(&semaphore, 0, 0));
    pthread_t thread = guest_start(relay, NULL);

    /* The loader looks a function up at its first call, and needs more. */
    libc_calls();
    CHECK(getcontext(&coroutine) == 0 && getcontext(&home) == 0);
    coroutine.uc_stack.ss_sp = memory;
    coroutine.uc_stack.ss_size = STACK;
    makecontext(&coroutine, on_coroutine, 0);
    CHECK(swapcontext(&home, &coroutine) == 0);
    memset(memory, 0x5a, STACK - ROOM);
    for (int round = 0; round < ROUNDS; round++) {
        byte = (char)round;
        RETURNS(bare(sp, SYS_write, to[1], (long)&byte, 1, 0), 1);
        bare_calls(sp);
        CHECK(swapcontext(&home, &coroutine) == 0);
        RETURNS(bare(sp, SYS_read, back[0], (long)&byte, 1, 0), 1);
        CHECK(byte == (char)(round + 1));
        guest_pause_us(3000);
    }
    for (int i = 0; i < PAGE; i++)
        CHECK(sp[i] == 0x3c);
    for (int i = 0; i < STACK - ROOM; i++)
        CHECK(memory[i] == 0x5a);
    close(to[1]);
    guest_join(thread);
    puts("ok");
    return 0;
}
