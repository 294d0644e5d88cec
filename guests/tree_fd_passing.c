// Shows: a child makes pipes and files while it runs and passes them to its parent by SCM_RIGHTS; the parent passes others back.
// Breaks if: a passed descriptor is another file in a copy, is passed twice, or is kept open by a copy that has no more use for it.
// kit: tree
#include "guest.h"
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { ROUNDS = 250 };

union control {
    struct cmsghdr header;
    char room[CMSG_SPACE(sizeof(int))];
};

static void pass(int channel, long number, int fd)
{
    union control control = { 0 };
    struct iovec v = { &number, sizeof number };
    struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control };
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);

    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    CHECK(sendmsg(channel, &m, 0) == sizeof number);
    CHECK(close(fd) == 0);
}

static int take(int channel, long wanted)
{
    union control control;
    long number;
    int fd;
    struct iovec v = { &number, sizeof number };
    struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control };

    CHECK(recvmsg(channel, &m, MSG_CMSG_CLOEXEC) == sizeof number && number == wanted);
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    CHECK(c && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof fd));
    memcpy(&fd, CMSG_DATA(c), sizeof fd);
    return fd;
}

/* Even rounds: the parent gets the reading end of a pipe. Odd ones: the child gets a file, and answers in it. */
static void child(int channel)
{
    for (long r = 0; r < ROUNDS; r++) {
        if (r % 2 == 0) {
            int ends[2];
            CHECK(pipe(ends) == 0);
            pass(channel, r, ends[0]);
            guest_write_all(ends[1], &r, sizeof r);
            CHECK(close(ends[1]) == 0);
        } else {
            long n;
            int file = take(channel, r);
            CHECK(pread(file, &n, sizeof n, 0) == sizeof n && n == r * 9);
            n++;
            CHECK(pwrite(file, &n, sizeof n, 8) == sizeof n && close(file) == 0);
            guest_write_all(channel, &r, sizeof r);
        }
    }
    _exit(0);
}

int main(void)
{
    int channel[2], status;
    long n, sum = 0;

    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, channel) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        CHECK(close(channel[0]) == 0);
        child(channel[1]);
    }
    CHECK(close(channel[1]) == 0);
    for (long r = 0; r < ROUNDS; r++) {
        if (r % 2 == 0) {
            int end = take(channel[0], r);
            guest_read_all(end, &n, sizeof n);
            CHECK(n == r && read(end, &n, 1) == 0 && close(end) == 0);
        } else {
            int file = memfd_create("guest", MFD_CLOEXEC), kept = dup(file);
            n = r * 9;
            CHECK(file >= 0 && kept >= 0 && pwrite(file, &n, sizeof n, 0) == sizeof n);
            pass(channel[0], r, file);
            guest_read_all(channel[0], &n, sizeof n);
            CHECK(n == r && pread(kept, &n, sizeof n, 8) == sizeof n && n == r * 9 + 1);
            CHECK(close(kept) == 0);
        }
        sum += n;
        guest_pause_us(1200);
    }
    CHECK(read(channel[0], &n, 1) == 0);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    printf("sum %ld\n", sum);
    return guest_ok();
}
