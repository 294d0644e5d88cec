// Shows: a queued signal that waits, blocked, while a standby is made, and is the first thing that the program asks for then.
// Breaks if: what waited when the copy was made counts as newer than the first event of its log: it comes again at a failover.
// kit: allow unprotected the refused call is there to send the signal while there is no standby
// kit: no-record the recording ends at the refused call
#include "guest.h"
#include <signal.h>
#include <sys/syscall.h>

enum { LOOKS = 150 };

int main(void)
{
    sigset_t set;
    siginfo_t info;
    struct timespec now = { 0, 0 };

    CHECK(sigemptyset(&set) == 0 && sigaddset(&set, SIGRTMIN) == 0);
    ZERO(pthread_sigmask(SIG_BLOCK, &set, NULL));
    CHECK(syscall(SYS_keyctl, -1L) == -1);
    CHECK(sigqueue(getpid(), SIGRTMIN, (union sigval){ .sival_int = 7 }) == 0);
    guest_pause_us(60000);
    CHECK(sigwaitinfo(&set, &info) == SIGRTMIN && info.si_value.sival_int == 7);
    for (int look = 0; look < LOOKS; look++) {
        guest_pause_us(1000);
        FAILS(sigtimedwait(&set, NULL, &now), EAGAIN);
    }
    return guest_ok();
}
