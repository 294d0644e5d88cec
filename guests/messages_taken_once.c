// Shows: recvmmsg takes each message of a local socket once and in order: waiting for one, for all, for none, with a time-out, in
//        buffers of 64 KiB, for more than a hundred at a time; what comes with a descriptor brings it.
// Breaks if: messages that the kernel had handed out when the primary died are taken again from the socket, or a call for many is cut.
#include "guest.h"
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>

enum { MESSAGES = 900, MOST = 120, LARGE = 64 << 10, LARGE_COUNT = 6, SPREAD = 3 };

static int pair[2], null_pipe[2];
static unsigned char small[MOST][400], large[LARGE_COUNT][LARGE];
static char controls[MOST][CMSG_SPACE(sizeof(int))];

static size_t bytes_of(uint64_t n)
{
    return 8 + (size_t)(guest_mix(n) % 300);
}

static void *sender(void *arg)
{
    (void)arg;
    for (uint64_t n = 0; n < MESSAGES; n++) {
        unsigned char data[400];
        char control[CMSG_SPACE(sizeof(int))];
        struct iovec v = { data, bytes_of(n) };
        struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };

        guest_fill(data, sizeof data, n);
        memcpy(data, &n, sizeof n);
        if (n % 10 == 3) {
            memset(control, 0, sizeof control);
            m.msg_control = control;
            m.msg_controllen = sizeof control;
            struct cmsghdr *c = CMSG_FIRSTHDR(&m);
            c->cmsg_level = SOL_SOCKET;
            c->cmsg_type = SCM_RIGHTS;
            c->cmsg_len = CMSG_LEN(sizeof(int));
            memcpy(CMSG_DATA(c), &null_pipe[0], sizeof(int));
        }
        CHECK(sendmsg(pair[1], &m, 0) == (ssize_t)v.iov_len);
        if (n % 7 == 0)
            guest_pause_us(300);
    }
    return NULL;
}

static void check(uint64_t n, const unsigned char *data, const struct mmsghdr *m)
{
    unsigned char expected[400];
    struct stat is, was;
    int fd = -1;

    guest_fill(expected, sizeof expected, n);
    memcpy(expected, &n, sizeof n);
    CHECK(m->msg_len == bytes_of(n) && memcmp(data, expected, m->msg_len) == 0);
    CHECK((m->msg_hdr.msg_controllen != 0) == (n % 10 == 3));
    if (n % 10 == 3) {
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m->msg_hdr)), sizeof fd);
        CHECK(fstat(fd, &is) == 0 && fstat(null_pipe[0], &was) == 0 && is.st_ino == was.st_ino);
        ZERO(close(fd));
    }
}

int main(void)
{
    uint64_t n = 0;

    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0 && pipe(null_pipe) == 0);
    pthread_t t = guest_start(sender, NULL);
    for (int round = 0; n < MESSAGES; round++) {
        struct mmsghdr m[MOST];
        struct iovec v[MOST][SPREAD];
        struct timespec left = { 100, 0 };
        unsigned char(*at)[400] = small;
        int is_large = round % 5 == 4, most = is_large ? LARGE_COUNT : round % 5 == 3 ? MOST : 6;
        int all = (int)(MESSAGES - n < 4 ? MESSAGES - n : 4), got;

        memset(m, 0, sizeof m);
        for (int i = 0; i < most; i++) {
            unsigned char *data = is_large ? large[i] : at[i];
            v[i][0] = (struct iovec){ data, 5 };
            v[i][1] = (struct iovec){ data + 5, 60 };
            v[i][2] = (struct iovec){ data + 65, is_large ? LARGE - 65 : 335 };
            m[i].msg_hdr.msg_iov = v[i];
            m[i].msg_hdr.msg_iovlen = SPREAD;
            m[i].msg_hdr.msg_control = controls[i];
            m[i].msg_hdr.msg_controllen = sizeof controls[i];
        }
        switch (round % 5) {
        case 0:
            got = recvmmsg(pair[0], m, 6, MSG_WAITFORONE, NULL);
            break;
        case 1:
            got = recvmmsg(pair[0], m, (unsigned)all, 0, NULL);
            CHECK(got == all);
            break;
        case 2:
            got = recvmmsg(pair[0], m, (unsigned)all, 0, &left);
            CHECK(got == all && left.tv_sec > 0 && left.tv_sec < 100);
            break;
        case 3: {
            struct pollfd p = { pair[0], POLLIN, 0 };
            CHECK(poll(&p, 1, -1) == 1);
            got = recvmmsg(pair[0], m, MOST, MSG_DONTWAIT, NULL);
            break;
        }
        default:
            got = recvmmsg(pair[0], m, LARGE_COUNT, MSG_WAITFORONE, NULL);
        }
        CHECK(got > 0);
        for (int i = 0; i < got; i++, n++)
            check(n, is_large ? large[i] : at[i], &m[i]);
        CHECK(m[got < most ? got : most - 1].msg_len == 0 || got == most);
    }
    guest_join(t);
    int next = dup(pair[0]);
    CHECK(next == null_pipe[1] + 1);
    printf("messages %d\n", MESSAGES);
    return guest_ok();
}
