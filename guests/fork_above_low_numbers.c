// Shows: a process whose threads have the first numbers that the kernel gives away when it comes round makes children as fast as others.
// Breaks if: a promoted copy takes each number for one behind which the kernel comes round: 8192 are passed over before each child.
#include "numbers.h"
#include <sys/wait.h>

/* A pause so long that what was known of the kernel's next number is old. */
enum { ELDERS = 4, FIRST = 300, ROUNDS = 8, PAUSE_US = 55000, SOON_MS = 400 };

static void *elder(void *argument)
{
    elder_begins();
    do
        guest_pause_us(1000);
    while (elder_goes_on());
    return argument;
}

static long forks_in_ms(void)
{
    struct timespec before, behind;
    int status;

    ZERO(clock_gettime(CLOCK_MONOTONIC, &before));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        _exit(0);
    ZERO(clock_gettime(CLOCK_MONOTONIC, &behind));
    RETURNS(waitpid(child, &status, 0), child);
    CHECK(status == 0);
    return (behind.tv_sec - before.tv_sec) * 1000 + (behind.tv_nsec - before.tv_nsec) / 1000000;
}

int main(void)
{
    int slow = 0;

    if (!next_number_is(FIRST))
        fprintf(stderr, "numbers cannot be chosen\n");
    elders_start(elder, ELDERS);
    guest_pause_us(PAUSE_US);
    for (int round = 0; round < ROUNDS; round++) {
        slow += forks_in_ms() >= SOON_MS;
        guest_pause_us(PAUSE_US);
    }
    /* One may be, beside a failover on a busy machine. */
    CHECK(slow < 2);
    elders_end(ELDERS);
    return guest_ok();
}
