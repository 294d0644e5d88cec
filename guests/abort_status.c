// Shows: abort() runs the SIGABRT handler, then ends the program by SIGABRT all the same.
// Breaks if: the deterministic death is followed by a promotion whose copy aborts again, on and on, or the status is another.
// kit: signal 6
// kit: allow promoted abort is a crash like any other: the standby takes over, and comes to the same abort
// kit: allow unprotected as above
// kit: no-kill the guest dies by itself, and a kill could not be told from that
#include "guest.h"
#include <signal.h>
#include <sys/resource.h>

static void handler(int signal)
{
    (void)signal;
    guest_write_all(1, "handled\nok\n", 11);
}

int main(void)
{
    const struct rlimit no_core = { 0, 0 };

    CHECK(setrlimit(RLIMIT_CORE, &no_core) == 0);
    CHECK(signal(SIGABRT, handler) != SIG_ERR);
    for (int i = 0; i < 80; i++)
        guest_pause_us(400);
    abort();
}
