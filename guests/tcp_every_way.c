// Shows: bytes go through one TCP connection in every way that the kernel has, in both directions, and all come, once.
// Breaks if: a way is not counted, or a look at bytes that stay counts: a standby that is made in between begins with that.
#include "net.h"
#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

enum { ROUNDS = 360, MOST = 3000, OUT_WAYS = 8, IN_WAYS = 11 };

static int ends[2], tube[2], file;
static unsigned char out[MOST], in[MOST];

/* Three parts of unequal length. */
static void cut(struct iovec parts[3], unsigned char *from, size_t len)
{
    size_t first = len / 3, second = len / 7;

    parts[0] = (struct iovec){ from, first };
    parts[1] = (struct iovec){ from + first, second };
    parts[2] = (struct iovec){ from + first + second, len - first - second };
}

static void put(int to, int way, size_t len)
{
    struct iovec parts[3];
    off_t at = 0;

    cut(parts, out, len);
    struct msghdr message = { .msg_iov = parts, .msg_iovlen = 3 };
    struct mmsghdr two[2] = { { .msg_hdr = { .msg_iov = parts, .msg_iovlen = 1 } },
                              { .msg_hdr = { .msg_iov = parts + 1, .msg_iovlen = 2 } } };
    switch (way) {
    case 0: RETURNS(write(to, out, len), len); break;
    case 1: RETURNS(send(to, out, len, MSG_NOSIGNAL), len); break;
    case 2: RETURNS(sendto(to, out, len, 0, NULL, 0), len); break;
    case 3: RETURNS(writev(to, parts, 3), len); break;
    case 4: RETURNS(sendmsg(to, &message, 0), len); break;
    case 5: RETURNS(sendmmsg(to, two, 2, 0), 2); break;
    case 6:
        RETURNS(pwrite(file, out, len, 0), len);
        RETURNS(sendfile(to, file, &at, len), len);
        break;
    default:
        RETURNS(write(tube[1], out, len), len);
        for (size_t left = len; left > 0;) {
            ssize_t moved = splice(tube[0], NULL, to, NULL, left, 0);
            CHECK(moved > 0);
            left -= (size_t)moved;
        }
    }
}

/* Takes some of `len` bytes to `to`; how many, 0 for a way that only looks. */
static size_t take(int from, int way, unsigned char *to, size_t len)
{
    struct iovec parts[3];
    struct sockaddr_in peer;
    socklen_t peer_len = sizeof peer;

    cut(parts, to, len);
    struct msghdr message = { .msg_iov = parts, .msg_iovlen = 3 };
    struct mmsghdr one = { .msg_hdr = message };
    ssize_t got = 0;
    switch (way) {
    case 0: got = read(from, to, len); break;
    case 1: got = recv(from, to, len, 0); break;
    case 2: got = recv(from, to, len, MSG_WAITALL); break;
    case 3: CHECK(recv(from, to, len, MSG_PEEK) > 0); break;
    case 4: got = recvfrom(from, to, len, 0, (struct sockaddr *)&peer, &peer_len); break;
    case 5: got = readv(from, parts, 3); break;
    case 6: got = recvmsg(from, &message, 0); break;
    case 7: CHECK(recvmsg(from, &message, MSG_PEEK) > 0); break;
    case 8:
        RETURNS(recvmmsg(from, &one, 1, 0, NULL), 1);
        got = one.msg_len;
        break;
    case 9:
        RETURNS(recvmmsg(from, &one, 1, MSG_PEEK, NULL), 1);
        CHECK(one.msg_len > 0);
        break;
    default:
        got = splice(from, NULL, tube[1], NULL, len, 0);
        for (ssize_t done = 0; done < got;) {
            ssize_t part = read(tube[0], to + done, (size_t)(got - done));
            CHECK(part > 0);
            done += part;
        }
    }
    CHECK(got >= 0);
    return (size_t)got;
}

/* The kernel's notes of when something was sent bring back what was: bytes that are no part of the connection's. */
static void look_at_errors(int end)
{
    char control[512], payload[MOST];

    for (;;) {
        struct iovec part = { payload, sizeof payload };
        struct msghdr message = {
            .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control
        };
        if (recvmsg(end, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) {
            CHECK(errno == EAGAIN);
            return;
        }
    }
}

int main(void)
{
    int stamps = SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_ID, one = 1;
    uint64_t digest = 0;

    net_pair(ends);
    CHECK(pipe(tube) == 0);
    file = memfd_create("every way", 0);
    CHECK(file >= 0);
    for (int end = 0; end < 2; end++)
        CHECK(setsockopt(ends[end], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
    CHECK(setsockopt(ends[0], SOL_SOCKET, SO_TIMESTAMPING, &stamps, sizeof stamps) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t mix = guest_mix((uint64_t)round + 1);
        int from = round & 1;
        size_t len = 16 + mix % (MOST - 16);
        guest_fill(out, len, mix);
        put(ends[from], (int)(mix >> 20) % OUT_WAYS, len);
        memset(in, 0, len);
        for (size_t at = 0; at < len;) {
            int way = (int)((mix >> 32) + at + (uint64_t)round) % IN_WAYS;
            /* What only looks comes again before something is taken. */
            size_t got = take(ends[!from], way, in + at, len - at);
            if (got == 0)
                got = take(ends[!from], 0, in + at, len - at);
            at += got;
        }
        CHECK(memcmp(in, out, len) == 0);
        look_at_errors(ends[0]);
        digest = guest_mix(digest ^ guest_digest(in, len));
        if (round % 4 == 0)
            guest_pause_us(400);
    }
    CHECK(shutdown(ends[0], SHUT_WR) == 0 && read(ends[1], in, 1) == 0);
    RETURNS(write(ends[1], "end", 3), 3);
    RETURNS(recv(ends[0], in, 3, MSG_WAITALL), 3);
    printf("digest %016lx\n", (unsigned long)digest);
    return guest_ok();
}
