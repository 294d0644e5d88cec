// Shows: the signals that calls bring upon their own thread: SIGPIPE of a write that nobody reads, and SIGXFSZ of one behind the
//        limit of a file's size, each handled before the call has returned, or waiting behind a mask.
// Breaks if: such a signal dies with the primary that had not yet handled it, though the log has the call's error.
#include "guest.h"
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { ROUNDS = 100 };

static volatile sig_atomic_t pipes, sizes;

static void on_signal(int signal)
{
    if (signal == SIGPIPE)
        pipes++;
    else
        sizes++;
}

/* Blocked, it waits, and is taken without its handler. */
static void behind_a_mask(int fd, const sigset_t *set)
{
    struct timespec now = { 0, 0 };
    sigset_t waiting;

    CHECK(sigprocmask(SIG_BLOCK, set, NULL) == 0);
    FAILS(write(fd, "x", 1), EPIPE);
    guest_pause_us(300);
    CHECK(sigpending(&waiting) == 0 && sigismember(&waiting, SIGPIPE) == 1);
    RETURNS(sigtimedwait(set, NULL, &now), SIGPIPE);
    FAILS(sigtimedwait(set, NULL, &now), EAGAIN);
    FAILS(write(fd, "x", 1), EPIPE);
    guest_pause_us(300);
    int before = pipes;
    CHECK(sigprocmask(SIG_UNBLOCK, set, NULL) == 0 && pipes == before + 1);
}

int main(void)
{
    struct sigaction act = { .sa_handler = on_signal };
    struct rlimit limit;
    struct iovec two[2] = { { "ab", 2 }, { "cd", 2 } };
    struct msghdr message = { .msg_iov = two, .msg_iovlen = 2 };
    FILE *file = tmpfile();
    sigset_t set;

    CHECK(file && sigemptyset(&set) == 0 && sigaddset(&set, SIGPIPE) == 0);
    CHECK(sigaction(SIGPIPE, &act, NULL) == 0 && sigaction(SIGXFSZ, &act, NULL) == 0);
    CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        int ends[2], pair[2], expected = pipes;
        CHECK(pipe(ends) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        CHECK(close(ends[0]) == 0 && close(pair[0]) == 0);
        FAILS(write(ends[1], "x", 1), EPIPE);
        CHECK(pipes == ++expected);
        FAILS(writev(ends[1], two, 2), EPIPE);
        CHECK(pipes == ++expected);
        FAILS(send(pair[1], "x", 1, 0), EPIPE);
        CHECK(pipes == ++expected);
        FAILS(sendmsg(pair[1], &message, 0), EPIPE);
        CHECK(pipes == ++expected);
        FAILS(sendmsg(pair[1], &message, MSG_NOSIGNAL), EPIPE);
        CHECK(pipes == expected);
        behind_a_mask(ends[1], &set);
        CHECK(close(ends[1]) == 0 && close(pair[1]) == 0);

        rlim_t soft = limit.rlim_cur;
        limit.rlim_cur = 4096;
        CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
        FAILS(pwrite(fileno(file), "x", 1, 4096), EFBIG);
        CHECK(sizes == 2 * r + 1);
        FAILS(ftruncate(fileno(file), 4097), EFBIG);
        CHECK(sizes == 2 * r + 2);
        limit.rlim_cur = soft;
        CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    }
    printf("SIGPIPE %d, SIGXFSZ %d\n", (int)pipes, (int)sizes);
    return guest_ok();
}
