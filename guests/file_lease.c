// Shows: a lease on a file: whoever opens it against the lease waits until its holder, told by a signal, has given it up.
// Breaks if: the lease, or its signal, belongs to the dead primary, and the other open waits for ever or is not held back.
#include "guest.h"
#include <signal.h>

enum { ROUNDS = 30 };

static volatile sig_atomic_t breaks;

static void on_break(int signal)
{
    (void)signal;
    breaks++;
}

int main(void)
{
    struct sigaction act = { .sa_handler = on_break };
    sigset_t block, before;

    sigemptyset(&block);
    sigaddset(&block, SIGIO);
    CHECK(sigprocmask(SIG_BLOCK, &block, &before) == 0 && sigaction(SIGIO, &act, NULL) == 0);
    guest_scratch();
    struct guest_name name = guest_path("leased");
    CHECK(close(open(name.s, O_RDWR | O_CREAT, 0600)) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        int fd = open(name.s, O_RDONLY | O_CLOEXEC);
        CHECK(fd >= 0);
        if (fcntl(fd, F_SETLEASE, F_RDLCK) != 0) {
            CHECK(errno == EINVAL || errno == EACCES); /* a file system without leases */
            CHECK(close(fd) == 0);
            continue;
        }
        CHECK(fcntl(fd, F_GETLEASE) == F_RDLCK);
        CHECK(close(open(name.s, O_RDONLY)) == 0);
        FAILS(open(name.s, O_WRONLY | O_NONBLOCK), EWOULDBLOCK);
        while (!breaks)
            FAILS(sigsuspend(&before), EINTR);
        CHECK(fcntl(fd, F_SETLEASE, F_UNLCK) == 0);
        int other = open(name.s, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
        CHECK(other >= 0 && close(other) == 0 && close(fd) == 0);
        breaks = 0;
        guest_pause_us(2000);
    }
    CHECK(unlink(name.s) == 0);
    guest_scratch_end();
    return guest_ok();
}
