// Shows: a process that has asked to be traced goes on: nobody sends it signals, each of which would stop it.
// Breaks if: the supervisor asks it for a standby, by a signal that its parent, who traces it now, does not pass on.
// kit: no-kill it has no standby from its first call on
// kit: allow unprotected it is traced, and stays so
// kit: no-record ptrace cannot be replayed
#include "guest.h"
#include <sys/ptrace.h>

int main(void)
{
    CHECK(ptrace(PTRACE_TRACEME, 0, 0, 0) == 0);
    for (int round = 0; round < 100; round++)
        guest_pause_us(3000);
    puts("ok");
    return 0;
}
