// Shows: O_ASYNC: SIGIO, or a signal of choice with the descriptor in it, comes to the owner (F_SETOWN, F_SETOWN_EX) when bytes arrive.
// Breaks if: the kernel's word of who owns a descriptor's signals still names the dead primary, and nobody is told any more.
#include "net.h"
#include <signal.h>
#include <sys/syscall.h>

enum { ROUNDS = 60 };

static volatile sig_atomic_t plain, chosen, last;

static void on_plain(int signal)
{
    (void)signal;
    plain++;
}

static void on_chosen(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)context;
    /* Without its descriptor where nobody was told in time: as where the queue of signals was full. */
    last = info->si_code == POLL_IN ? info->si_fd : -1;
    chosen++;
}

int main(void)
{
    struct sigaction a = { .sa_handler = on_plain }, b = { .sa_sigaction = on_chosen, .sa_flags = SA_SIGINFO };
    struct f_owner_ex owner = { F_OWNER_TID, (pid_t)syscall(SYS_gettid) }, told;
    sigset_t block, before;
    int x[2], y[2];
    char byte = 'x';

    sigemptyset(&block);
    sigaddset(&block, SIGIO);
    sigaddset(&block, SIGRTMIN + 3);
    CHECK(sigprocmask(SIG_BLOCK, &block, &before) == 0);
    CHECK(sigaction(SIGIO, &a, NULL) == 0 && sigaction(SIGRTMIN + 3, &b, NULL) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, x) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, y) == 0);
    CHECK(fcntl(x[0], F_SETOWN, getpid()) == 0 && fcntl(x[0], F_GETOWN) == getpid());
    CHECK(fcntl(x[0], F_SETFL, O_ASYNC) == 0);
    CHECK(fcntl(y[0], F_SETOWN_EX, &owner) == 0 && fcntl(y[0], F_SETSIG, SIGRTMIN + 3) == 0);
    CHECK(fcntl(y[0], F_SETFL, O_ASYNC | O_NONBLOCK) == 0 && fcntl(y[0], F_GETSIG) == SIGRTMIN + 3);
    for (int r = 0; r < ROUNDS; r++) {
        int seen = plain;
        guest_write_all(x[1], &byte, 1);
        while (plain == seen)
            FAILS(sigsuspend(&before), EINTR);
        guest_read_all(x[0], &byte, 1);
        seen = chosen;
        guest_write_all(y[1], &byte, 1);
        while (chosen == seen)
            FAILS(sigsuspend(&before), EINTR);
        CHECK(last == y[0] || last == -1);
        guest_read_all(y[0], &byte, 1);
        CHECK(fcntl(y[0], F_GETOWN_EX, &told) == 0 && told.type == F_OWNER_TID && told.pid == owner.pid);
        guest_pause_us(800);
    }
    return guest_ok();
}
