/* Calls that no patched site makes, by threads that have made many of the others before. */
#ifndef CALLS_PAST_THE_GATE_H
#define CALLS_PAST_THE_GATE_H

#include "guest.h"
#include <sys/mman.h>
#include <sys/syscall.h>

typedef long (*caller)(long number, long a, long b, long c);

/* mov %rdi,%rax; mov %rsi,%rdi; mov %rdx,%rsi; mov %rcx,%rdx; syscall; ret */
#define CALLER_BYTES 0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x48, 0x89, 0xd6, 0x48, 0x89, 0xca, 0x0f, 0x05, 0xc3

enum { CALLERS = 4, BEFORE = 200, BEHIND = 60 };

static pthread_barrier_t is_made;
static _Atomic(caller) past;

/* By its own descriptors, through libc and then past it: what one writes the other must read, once. */
static void *calls_both_ways(void *arg)
{
    int ends[2];
    long sum = 0;
    caller call;

    (void)arg;
    CHECK(pipe(ends) == 0);
    for (int i = 0; i < BEFORE; i++) {
        int back = -1;
        CHECK(write(ends[1], &i, sizeof i) == sizeof i && read(ends[0], &back, sizeof back) == sizeof back);
        sum += back;
    }
    pthread_barrier_wait(&is_made);
    pthread_barrier_wait(&is_made);
    call = past;
    for (int i = 0; i < BEHIND; i++) {
        int back = -1;
        CHECK(call(SYS_write, ends[1], (long)&i, sizeof i) == sizeof i);
        CHECK(read(ends[0], &back, sizeof back) == sizeof back && back == i);
        CHECK(call(SYS_getpid, 0, 0, 0) == getpid() && call(SYS_gettid, 0, 0, 0) == gettid());
        CHECK(write(ends[1], &i, sizeof i) == sizeof i);
        CHECK(call(SYS_read, ends[0], (long)&back, sizeof back) == sizeof back && back == i);
        CHECK(call(SYS_close, -1, 0, 0) == -EBADF);
        sum += back;
        guest_pause_us(200);
    }
    /* Nothing is left in it. */
    CHECK(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0 && read(ends[0], &ends, 1) == -1 && errno == EAGAIN);
    return guest_ptr(sum);
}

/* Starts the threads, has `make` make a caller while they are there, and has them use it. */
static long run_callers(caller (*make)(void))
{
    pthread_t threads[CALLERS];
    long sum = 0;

    CHECK(pthread_barrier_init(&is_made, NULL, CALLERS + 1) == 0);
    for (int i = 0; i < CALLERS; i++)
        threads[i] = guest_start(calls_both_ways, NULL);
    pthread_barrier_wait(&is_made);
    past = make();
    pthread_barrier_wait(&is_made);
    for (int i = 0; i < CALLERS; i++)
        sum += guest_num(guest_join(threads[i]));
    return sum;
}

#endif
