// Shows: threads that read the processor's time-stamp counter (rdtsc, rdtscp) and write what they have read.
// Breaks if: each copy has its own reading: what a promoted copy finds in the pipe is not what it remembers.
#include "guest.h"
#include <x86intrin.h>

enum { THREADS = 3, ROUNDS = 400 };

// The registers that the instructions leave alone, and the processor's number.
static uint64_t keeps(uint64_t *with)
{
    uint64_t value, rcx = 0x1234, r11 = 0x5678;
    unsigned low, high;

    __asm__ volatile("mov %4, %%r11\n\t"
                     "rdtsc\n\t"
                     "mov %%eax, %0\n\t"
                     "mov %%rdx, %1\n\t"
                     "shl $32, %1\n\t"
                     "mov %%r11, %3"
                     : "=&r"(low), "=&r"(value), "+c"(rcx), "=&r"(*with)
                     : "r"(r11)
                     : "rax", "rdx", "r11", "cc");
    CHECK(rcx == 0x1234 && *with == 0x5678);
    high = (unsigned)(value >> 32);
    return (uint64_t)high << 32 | low;
}

// As Go has it: two readings that go on at one place, with a jump before the first and a fence before the second.
__attribute__((noinline)) static uint64_t chosen(int is_known)
{
    uint64_t value;

    __asm__ volatile("cmpl $1, %1\n\t"
                     "jne 3f\n\t"
                     "rdtscp\n"
                     "2:\tshl $32, %%rdx\n\t"
                     "add %%rdx, %%rax\n\t"
                     "jmp 4f\n"
                     "3:\tmfence\n\t"
                     "lfence\n\t"
                     "rdtsc\n\t"
                     "jmp 2b\n"
                     "4:"
                     : "=&a"(value)
                     : "r"(is_known)
                     : "rcx", "rdx", "cc");
    return value;
}

static uint64_t reading(int way, unsigned *processor, uint64_t *kept)
{
    switch (way) {
    case 0:
        return __rdtsc();
    case 1:
        return __rdtscp(processor);
    case 2:
        return keeps(kept);
    default:
        return chosen(way == 3);
    }
}

static void *run(void *arg)
{
    int ends[2];
    uint64_t last = 0, kept = 0;
    unsigned processor = 0;

    (void)arg;
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        uint64_t now = reading(r % 5, &processor, &kept);
        uint64_t both[2] = {now, processor}, back[2];

        CHECK(now > last && (processor & 0xfff) < 4096);
        last = now;
        CHECK(write(ends[1], both, sizeof both) == sizeof both);
        if (r % 8 == 0)
            guest_pause_us(200);
        CHECK(read(ends[0], back, sizeof back) == sizeof back);
        CHECK(back[0] == now && back[1] == processor);
    }
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
    return guest_ptr(ROUNDS);
}

int main(void)
{
    pthread_t t[THREADS];
    long rounds = 0;

    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, NULL);
    for (int i = 0; i < THREADS; i++)
        rounds += guest_num(guest_join(t[i]));
    printf("rounds %ld\n", rounds);
    return guest_ok();
}
