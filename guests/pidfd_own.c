// Shows: a process signals itself by a descriptor of its own: at once, and where the signal is blocked.
// Breaks if: such a signal is lost on its way to a copy that takes over, comes twice, or comes behind the call that sent it.
#include "guest.h"
#include <signal.h>
#include <sys/syscall.h>

enum { ROUNDS = 80 };

static volatile sig_atomic_t heard;

static void on_signal(int signal)
{
    (void)signal;
    heard++;
}

int main(void)
{
    struct sigaction act = { .sa_handler = on_signal };
    int own = (int)syscall(SYS_pidfd_open, getpid(), 0);
    sigset_t block;

    CHECK(own >= 0 && sigaction(SIGUSR1, &act, NULL) == 0);
    CHECK(sigemptyset(&block) == 0 && sigaddset(&block, SIGUSR1) == 0);
    for (int r = 1; r <= ROUNDS; r++) {
        CHECK(syscall(SYS_pidfd_send_signal, own, SIGUSR1, NULL, 0) == 0 && heard == 2 * r - 1);
        CHECK(sigprocmask(SIG_BLOCK, &block, NULL) == 0);
        CHECK(syscall(SYS_pidfd_send_signal, own, SIGUSR1, NULL, 0) == 0 && heard == 2 * r - 1);
        guest_pause_us(1500);
        CHECK(sigprocmask(SIG_UNBLOCK, &block, NULL) == 0 && heard == 2 * r);
    }
    printf("heard %d\n", (int)heard);
    return guest_ok();
}
