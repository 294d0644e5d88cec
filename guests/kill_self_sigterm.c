// Shows: kill(getpid(), SIGTERM) with the default action ends the program, threads and all, with that status.
// Breaks if: a default-action signal is taken for a failure: the standby is promoted and the program lives on.
// kit: signal 15
#include "guest.h"
#include <signal.h>

static void *forever(void *arg)
{
    (void)arg;
    for (;;)
        guest_pause_us(500);
    return NULL;
}

int main(void)
{
    for (int i = 0; i < 3; i++)
        guest_start(forever, NULL);
    for (int i = 0; i < 80; i++)
        guest_pause_us(400);
    guest_ok();
    CHECK(kill(getpid(), SIGTERM) == 0);
    guest_pause_us(60 * 1000000L);
    return 1; /* still here after SIGTERM */
}
