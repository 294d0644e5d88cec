// Shows: a child has a number of its own, also where the kernel gives one away that a thread has kept over a failover.
// Breaks if: a promoted copy makes a child of that number: `kill` and `pidfd_open` then find the thread, and not the child.
// kit: alone it says which number the kernel gives next: another guest's process has that of one that is to be killed
#include "numbers.h"
#include <signal.h>
#include <sys/wait.h>

/* A pause so long that what was known of the kernel's next number is old. */
enum { ELDERS = 3, ROUNDS = 9, PAUSE_US = 55000 };

static void *elder(void *argument)
{
    elder_begins();
    do
        guest_pause_us(1000);
    while (elder_goes_on());
    return argument;
}

int main(void)
{
    elders_start(elder, ELDERS);
    /* The first thread is one, too. */
    elders[ELDERS] = getpid();
    for (int round = 0; round < ROUNDS; round++) {
        int status;

        /* Without the right to choose, the kernel's own order is as good, and shows less. */
        if (!next_number_is(elders[(round + ELDERS) % (ELDERS + 1)]) && round == 0)
            fprintf(stderr, "numbers cannot be chosen\n");
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            for (;;)
                pause();
        }
        for (int i = 0; i <= ELDERS; i++)
            CHECK(elders[i] != child);
        RETURNS(kill(child, SIGTERM), 0);
        RETURNS(waitpid(child, &status, 0), child);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
        guest_pause_us(PAUSE_US);
    }
    elders_end(ELDERS);
    return guest_ok();
}
