// Shows: raise() of a signal whose default action ends the program gives that wait status (here SIGUSR2).
// Breaks if: the runtime's own handler for default-action signals changes the status, or the signal is lost.
// kit: signal 12
#include "guest.h"
#include <signal.h>

int main(void)
{
    for (int i = 0; i < 80; i++) {
        CHECK(raise(SIGWINCH) == 0); /* ignored by default */
        guest_pause_us(400);
    }
    guest_ok();
    raise(SIGUSR2);
    return 1;
}
