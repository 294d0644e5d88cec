// Shows: a socket that sends SIGIO to its owner (O_ASYNC, F_SETOWN), as nginx has one to each worker: a child writes at the other
//        end, and its parent, which sleeps, hears of each number.
// Breaks if: a copy of the child makes another process the owner, or nobody is told after a failover or from a checkpoint.
// kit: tree
#define _GNU_SOURCE
#include "guest.h"
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { ROUNDS = 150 };

static void on_signal(int signal)
{
    (void)signal;
}

int main(void)
{
    struct sigaction act = { .sa_handler = on_signal };
    sigset_t block, open;
    int pair[2], status;
    long sum = 0;

    sigemptyset(&block);
    sigaddset(&block, SIGIO);
    CHECK(sigaction(SIGIO, &act, NULL) == 0 && sigprocmask(SIG_BLOCK, &block, &open) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    CHECK(fcntl(pair[0], F_SETFL, O_ASYNC | O_NONBLOCK) == 0 && fcntl(pair[0], F_SETOWN, getpid()) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        long answer;
        for (long n = 1; n <= ROUNDS; n++) {
            guest_write_all(pair[1], &n, sizeof n);
            guest_read_all(pair[1], &answer, sizeof answer);
            CHECK(answer == n);
            guest_pause_us(1500);
        }
        _exit(0);
    }
    for (long n = 1, got; n <= ROUNDS; n++) {
        while (read(pair[0], &got, sizeof got) != sizeof got) {
            CHECK(errno == EAGAIN || errno == EINTR);
            sigsuspend(&open);
        }
        CHECK(got == n && fcntl(pair[0], F_GETOWN) == getpid());
        sum += got;
        CHECK(write(pair[0], &got, sizeof got) == sizeof got);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    printf("sum %ld\n", sum);
    return guest_ok();
}
