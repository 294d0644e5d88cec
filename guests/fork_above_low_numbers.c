// Shows: a process whose threads have the first numbers that the kernel gives away when it comes round makes children as fast as others.
// Breaks if: a promoted copy takes each number for one behind which the kernel comes round: 8192 are passed over before each child.
// kit: alone it says which number the kernel gives next: another guest's process has that of one that is to be killed
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
    int64_t before = guest_now_ns(CLOCK_MONOTONIC);
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        _exit(0);
    long ms = (long)((guest_now_ns(CLOCK_MONOTONIC) - before) / 1000000);
    RETURNS(waitpid(child, &status, 0), child);
    CHECK(status == 0);
    return ms;
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
