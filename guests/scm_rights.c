// Shows: SCM_RIGHTS: a program sends descriptors to itself; they arrive under new numbers, in order, with the same files behind.
// Breaks if: ancillary data is not logged, or a received descriptor is made a second time in the shared table.
#include "guest.h"
#include <sys/socket.h>

enum { ROUNDS = 80 };

static void send_two(int channel, int a, int b, char tag)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(2 * sizeof(int))];
    } control = { 0 };
    struct iovec v = { &tag, 1 };
    struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control };
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    int fds[2] = { a, b };

    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof fds);
    memcpy(CMSG_DATA(c), fds, sizeof fds);
    CHECK(sendmsg(channel, &m, 0) == 1);
}

static char take_two(int channel, int fds[2])
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(2 * sizeof(int))];
    } control;
    char tag;
    struct iovec v = { &tag, 1 };
    struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control };

    CHECK(recvmsg(channel, &m, MSG_CMSG_CLOEXEC) == 1);
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    CHECK(c && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(2 * sizeof(int)));
    memcpy(fds, CMSG_DATA(c), 2 * sizeof(int));
    return tag;
}

int main(void)
{
    int channel[2];
    long bytes = 0;

    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, channel) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        int ends[2], got[2];
        char text[16], back[16];
        CHECK(pipe(ends) == 0);
        send_two(channel[0], ends[0], ends[1], (char)r);
        CHECK(close(ends[0]) == 0 && close(ends[1]) == 0); /* alive in flight only */
        CHECK(take_two(channel[1], got) == (char)r);
        CHECK(fcntl(got[0], F_GETFD) == FD_CLOEXEC);
        int n = snprintf(text, sizeof text, "round %d", r);
        guest_write_all(got[1], text, (size_t)n);
        CHECK(read(got[0], back, sizeof back) == n && memcmp(text, back, (size_t)n) == 0);
        CHECK(close(got[0]) == 0 && close(got[1]) == 0);
        bytes += n;
        guest_pause_us(300);
    }
    printf("bytes %ld\n", bytes);
    return guest_ok();
}
