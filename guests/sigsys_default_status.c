// Shows: SIGSYS that the program sends itself ends it, with that wait status.
// Breaks if: the runtime's handler for SIGSYS takes it for one of its own.
// kit: signal 31
#include "guest.h"
#include <signal.h>
#include <sys/resource.h>

int main(void)
{
    const struct rlimit no_core = { 0, 0 };

    CHECK(setrlimit(RLIMIT_CORE, &no_core) == 0);
    for (int i = 0; i < 60; i++)
        guest_pause_us(400);
    guest_ok();
    kill(getpid(), SIGSYS);
    return 1;
}
