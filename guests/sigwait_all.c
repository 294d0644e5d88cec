// Shows: a thread that waits for every signal there is, with sigwait, sigtimedwait or a signalfd, gets what is sent and nothing else; so does a child's.
// Breaks if: the runtime's own signal comes to the program, or, taken by the program, not to the runtime.
#include "guest.h"
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

enum { ROUNDS = 40 };

static sigset_t all;

static void *waiter(void *arg)
{
    int fd = signalfd(-1, &all, SFD_CLOEXEC);

    CHECK(fd >= 0);
    for (int r = 0; r < ROUNDS; r++) {
        struct timespec long_enough = { 60, 0 };
        struct signalfd_siginfo info;
        int signal = 0;

        if (r % 3 == 0) {
            ZERO(sigwait(&all, &signal));
        } else if (r % 3 == 1) {
            signal = sigtimedwait(&all, NULL, &long_enough);
        } else {
            RETURNS(read(fd, &info, sizeof info), sizeof info);
            signal = (int)info.ssi_signo;
        }
        CHECK(signal == SIGUSR1);
        guest_pause_us(1500);
    }
    CHECK(close(fd) == 0);
    return arg;
}

static void send_and_wait(void)
{
    pthread_t t = guest_start(waiter, NULL);

    for (int r = 0; r < ROUNDS; r++) {
        sigset_t waiting;

        CHECK(kill(getpid(), SIGUSR1) == 0);
        do {
            guest_pause_us(300);
            CHECK(sigpending(&waiting) == 0);
            CHECK(!sigismember(&waiting, SIGSYS));
        } while (sigismember(&waiting, SIGUSR1));
    }
    guest_join(t);
}

int main(void)
{
    int status;

    CHECK(sigfillset(&all) == 0);
    ZERO(pthread_sigmask(SIG_SETMASK, &all, NULL));
    send_and_wait();
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        send_and_wait();
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    return guest_ok();
}
