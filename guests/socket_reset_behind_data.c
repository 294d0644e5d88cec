// Shows: what came on a stream before the other end was closed with unread bytes is read first, and then ECONNRESET is told once, by
//        each call that receives; one without a byte of room takes nothing.
// Breaks if: the reset is told in front of what had come, or twice, or never.
#include "net.h"
#include <poll.h>
#include <sys/uio.h>

enum { ROUNDS = 12, WAYS = 7, ROOM = 4 };

static struct iovec two[2];
static char text[ROOM];

static long receive(int fd, int way)
{
    struct sockaddr_storage from;
    socklen_t length = sizeof from;
    struct msghdr message = { .msg_iov = two, .msg_iovlen = 2 };

    switch (way) {
    case 0: return read(fd, text, ROOM);
    case 1: return recv(fd, text, ROOM, 0);
    case 2: return recv(fd, text, ROOM, MSG_DONTWAIT);
    case 3: return recv(fd, text, ROOM, MSG_NOSIGNAL);
    case 4: return readv(fd, two, 2);
    case 5: return recvmsg(fd, &message, 0);
    default: return recvfrom(fd, text, ROOM, 0, (struct sockaddr *)&from, &length);
    }
}

/* Bytes that wait at one end, and none of the other end's own read there. */
static void prepare(int pair[2])
{
    struct pollfd there = { pair[1], POLLIN, 0 }, ends = { pair[0], POLLIN | POLLRDHUP, 0 };

    CHECK(write(pair[0], "unread", 6) == 6 && poll(&there, 1, -1) == 1);
    CHECK(write(pair[1], "answer", 6) == 6);
    ZERO(close(pair[1]));
    do {
        CHECK(poll(&ends, 1, -1) == 1);
    } while ((ends.revents & POLLERR) == 0);
}

static int told;

/* `next`: the way of the second call. */
static void read_all(int fd, int way, int next)
{
    memset(text, 0, sizeof text);
    CHECK(receive(fd, way) == 4 && memcmp(text, "answ", 4) == 0);
    CHECK(receive(fd, next) == 2 && memcmp(text, "er", 2) == 0);
    long last = receive(fd, (way + 2) % WAYS);
    /* A primary that has been told, and dies then, may take it with it. */
    CHECK(last == 0 || (last == -1 && errno == ECONNRESET));
    told += last != 0;
    RETURNS(receive(fd, way), 0);
}

int main(void)
{
    int pair[2];

    two[0] = (struct iovec){ text, 3 };
    two[1] = (struct iovec){ text + 3, 1 };
    for (int r = 0; r < ROUNDS; r++) {
        for (int way = 0; way < WAYS; way++) {
            ZERO(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
            prepare(pair);
            read_all(pair[0], way, (way + 1) % WAYS);
            ZERO(close(pair[0]));
            net_pair(pair);
            prepare(pair);
            /* Of TCP's ways the first ones leave the error at the socket. */
            read_all(pair[0], way, way < 4 ? (way + 1) % 4 : 4 + (way - 3) % 3);
            ZERO(close(pair[0]));
        }
        /* Where a read leaves the error, anybody else may ask for it. */
        int error = 0;
        socklen_t length = sizeof error;
        net_pair(pair);
        prepare(pair);
        RETURNS(recv(pair[0], text, ROOM, MSG_DONTWAIT | MSG_NOSIGNAL), 4);
        RETURNS(recv(pair[0], text, ROOM, MSG_DONTWAIT), 2);
        CHECK(getsockopt(pair[0], SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == ECONNRESET);
        RETURNS(recv(pair[0], text, ROOM, MSG_NOSIGNAL), 0);
        ZERO(close(pair[0]));
        /* The error of a datagram socket comes first. */
        ZERO(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair));
        prepare(pair);
        FAILS(recv(pair[0], text, ROOM, MSG_DONTWAIT), ECONNRESET);
        RETURNS(recv(pair[0], text, ROOM, MSG_DONTWAIT), 4);
        RETURNS(recv(pair[0], text, ROOM, MSG_DONTWAIT), 0);
        ZERO(close(pair[0]));
        /* Without room for a byte nothing is taken. */
        struct iovec none[2] = { { text, 0 }, { text + 1, 0 } };
        ZERO(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
        CHECK(write(pair[1], "datagram", 8) == 8);
        RETURNS(readv(pair[0], none, 2), 0);
        RETURNS(read(pair[0], text, 0), 0);
        RETURNS(recv(pair[0], text, ROOM, MSG_TRUNC), 8);
        ZERO(close(pair[0]));
        ZERO(close(pair[1]));
        guest_pause_us(2000);
    }
    CHECK(told >= ROUNDS * WAYS * 2 - 3);
    return guest_ok();
}
