// Shows: signalfd: blocked signals become reads with number, sender and value; none is lost or doubled.
// Breaks if: the descriptor reads another process's signals: after a failover its reader is a new process.
#include "guest.h"
#include <signal.h>
#include <sys/signalfd.h>

enum { ROUNDS = 60 };

int main(void)
{
    sigset_t set;
    long sum = 0;

    CHECK(sigemptyset(&set) == 0 && sigaddset(&set, SIGUSR1) == 0 && sigaddset(&set, SIGRTMIN + 1) == 0);
    ZERO(pthread_sigmask(SIG_BLOCK, &set, NULL));
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    CHECK(fd >= 0);
    for (int r = 0; r < ROUNDS; r++) {
        struct signalfd_siginfo info[4];
        union sigval value = { .sival_int = r };
        FAILS(read(fd, info, sizeof info), EAGAIN);
        CHECK(raise(SIGUSR1) == 0);
        CHECK(sigqueue(getpid(), SIGRTMIN + 1, value) == 0);
        value.sival_int = r + 1;
        CHECK(sigqueue(getpid(), SIGRTMIN + 1, value) == 0);
        guest_pause_us(300);
        RETURNS(read(fd, info, sizeof info), 3 * sizeof info[0]);
        CHECK(info[0].ssi_signo == SIGUSR1 && info[1].ssi_signo == (uint32_t)SIGRTMIN + 1);
        CHECK(info[0].ssi_pid == (uint32_t)getpid());
        CHECK(info[1].ssi_int == r && info[2].ssi_int == r + 1);
        sum += info[1].ssi_int;
    }
    CHECK(close(fd) == 0);
    printf("sum %ld\n", sum);
    return guest_ok();
}
