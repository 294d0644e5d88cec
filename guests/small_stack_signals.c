// Shows: handlers that interrupt a system call on a coroutine's stack run on that stack, or on the alternate one; they make
// calls, nest, leave by siglongjmp, and change to other coroutines and come back much later.
// Breaks if: a handler runs on the gate's stack, its calls write over the gate that it has interrupted, or who leaves by
// siglongjmp keeps some of that stack for ever.
#include "guest.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <ucontext.h>

enum { ROUNDS = 12, COROUTINES = 12, JUMPS = 40, STACK = 65536 };

static char stacks[COROUTINES][STACK] __attribute__((aligned(64)));
static ucontext_t home, coroutines[COROUTINES];
static volatile int current, handled, nested, finished;
static volatile enum { RETURN, NEST, JUMP, CHANGE } what;
static sigjmp_buf back;
static char *alternate;
static size_t alternate_size;

static long raw(long nr, long a, long b, long c)
{
    long result;

    __asm__ volatile("syscall" : "=a"(result) : "a"(nr), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}

static void send(int signal)
{
    RETURNS(raw(SYS_tgkill, getpid(), raw(SYS_gettid, 0, 0, 0), signal), 0);
}

static void on_coroutine(int signal)
{
    char here;

    CHECK(signal == SIGUSR1);
    CHECK(&here >= stacks[current] && &here < stacks[current] + STACK);
    handled++;
    RETURNS(raw(SYS_getpid, 0, 0, 0), getpid());
    if (what == NEST)
        send(SIGUSR2);
    if (what == JUMP)
        siglongjmp(back, 1);
    if (what == CHANGE)
        CHECK(swapcontext(&coroutines[current], &home) == 0);
    RETURNS(raw(SYS_sched_yield, 0, 0, 0), 0);
}

static void on_alternate(int signal)
{
    char here;

    CHECK(signal == SIGUSR2);
    CHECK(&here >= alternate && &here < alternate + alternate_size);
    nested++;
    RETURNS(raw(SYS_getpid, 0, 0, 0), getpid());
}

static __attribute__((noinline)) void leave(void)
{
    what = JUMP;
    if (sigsetjmp(back, 1) == 0) {
        send(SIGUSR1);
        CHECK(0);
    }
}

static void body(void)
{
    for (int round = 0; round < ROUNDS; round++) {
        int me = current, before = handled, nests = nested;

        what = RETURN;
        send(SIGUSR1);
        CHECK(handled == before + 1);
        what = NEST;
        send(SIGUSR1);
        CHECK(handled == before + 2 && nested == nests + 1);
        send(SIGUSR2);
        CHECK(nested == nests + 2);
        /* Here the others come in between. */
        what = CHANGE;
        send(SIGUSR1);
        CHECK(current == me);
        before = handled;
        for (int jump = 0; jump < JUMPS; jump++)
            leave();
        CHECK(handled == before + JUMPS);
        CHECK(swapcontext(&coroutines[me], &home) == 0);
    }
    finished++;
    for (;;)
        CHECK(swapcontext(&coroutines[current], &home) == 0);
}

static void *run(void *arg)
{
    stack_t use = { .ss_size = alternate_size };

    (void)arg;
    alternate = (char *)malloc(alternate_size);
    use.ss_sp = alternate;
    CHECK(sigaltstack(&use, NULL) == 0);
    for (int i = 0; i < COROUTINES; i++) {
        CHECK(getcontext(&coroutines[i]) == 0);
        coroutines[i].uc_stack.ss_sp = stacks[i];
        coroutines[i].uc_stack.ss_size = STACK;
        makecontext(&coroutines[i], body, 0);
    }
    while (finished < COROUTINES) {
        for (current = 0; current < COROUTINES; current++)
            CHECK(swapcontext(&home, &coroutines[current]) == 0);
        guest_pause_us(2000);
    }
    return NULL;
}

/* A thread that is cancelled in a call on a coroutine's stack is unwound from there. */
static int silent[2];
static volatile int cleaned;
static __thread ucontext_t own, waiter;

static void clean(void *arg)
{
    (void)arg;
    cleaned++;
}

static void wait_for_ever(void)
{
    char byte;

    pthread_cleanup_push(clean, NULL);
    CHECK(read(silent[0], &byte, 1) < 0);
    pthread_cleanup_pop(0);
}

static void *wait_on_coroutine(void *arg)
{
    CHECK(getcontext(&waiter) == 0);
    waiter.uc_stack.ss_sp = arg;
    waiter.uc_stack.ss_size = STACK;
    waiter.uc_link = &own;
    makecontext(&waiter, wait_for_ever, 0);
    CHECK(swapcontext(&own, &waiter) == 0);
    return NULL;
}

int main(void)
{
    struct sigaction here = { .sa_handler = on_coroutine }, there = { .sa_handler = on_alternate, .sa_flags = SA_ONSTACK };

    alternate_size = getauxval(AT_MINSIGSTKSZ);
    alternate_size = (alternate_size < 2048 ? 2048 : alternate_size) + 4096;
    ZERO(sigaction(SIGUSR1, &here, NULL));
    ZERO(sigaction(SIGUSR2, &there, NULL));
    ZERO(pipe(silent));
    guest_join(guest_start(run, NULL));
    CHECK(nested == 2 * ROUNDS * COROUTINES);
    for (int round = 0; round < 3; round++) {
        pthread_t thread = guest_start(wait_on_coroutine, stacks[round]);

        guest_pause_us(3000);
        ZERO(pthread_cancel(thread));
        CHECK(guest_join(thread) == PTHREAD_CANCELED);
    }
    CHECK(cleaned == 3);
    puts("ok");
    return 0;
}
