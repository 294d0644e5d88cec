// Shows: a child that is sent SIGKILL by its parent ends, also if its primary dies by another hand at that very moment.
// Breaks if: a copy takes over for a child whose parent has asked the kernel to end the dead primary: nobody ends the copy, and
// the parent waits for ever.
// kit: tree
#include "guest.h"
#include <signal.h>
#include <sys/wait.h>

enum { THREADS = 4, ROUNDS = 16 };

static void *kills(void *arg)
{
    unsigned mix = (unsigned)guest_num(arg) * 7919u + 1;
    int status;

    for (int r = 0; r < ROUNDS; r++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0)
            for (;;)
                pause();
        mix = mix * 1103515245u + 12345u;
        guest_pause_us(15000 + (mix >> 16) % 15000);
        CHECK(kill(child, SIGKILL) == 0);
        RETURNS(waitpid(child, &status, 0), child);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    }
    return arg;
}

int main(void)
{
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++)
        threads[i] = guest_start(kills, guest_ptr(i));
    for (int i = 0; i < THREADS; i++)
        CHECK(guest_num(guest_join(threads[i])) == i);
    return guest_ok();
}
