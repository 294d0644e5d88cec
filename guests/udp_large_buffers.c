// Shows: datagrams taken by each call that there is, into buffers of more than a datagram can have, arrive once each.
// Breaks if: such a call is made in the plain way: what the kernel has handed to a primary that is killed is gone with it.
#include "guest.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { DATAGRAMS = 6000, PARTS = 150, PART = 2048, BYTES = 900, WAYS = 6 };

static struct iovec parts[PARTS];
static unsigned char room[PARTS][PART];

static void fill(unsigned char *bytes, int number)
{
    for (int i = 0; i < BYTES; i++)
        bytes[i] = (unsigned char)(number * 7 + i);
}

/* The next datagram, taken in one of the ways. */
static ssize_t take(int fd, int way)
{
    struct sockaddr_in from;
    socklen_t from_len = sizeof from;
    struct msghdr header = { .msg_name = &from, .msg_namelen = sizeof from, .msg_iov = parts, .msg_iovlen = PARTS };
    struct mmsghdr several = { .msg_hdr = header };

    switch (way) {
    case 0: return recvmsg(fd, &header, 0);
    case 1: return readv(fd, parts, PARTS);
    case 2: return recvmmsg(fd, &several, 1, 0, NULL) == 1 ? (ssize_t)several.msg_len : -1;
    case 3: return recv(fd, room, sizeof room, 0);
    case 4: return recvfrom(fd, room, sizeof room, 0, (struct sockaddr *)&from, &from_len);
    default: return read(fd, room, sizeof room);
    }
}

static void *send_all(void *arg)
{
    int *ends = arg;
    unsigned char bytes[BYTES], answer;

    for (int n = 0; n < DATAGRAMS; n++) {
        fill(bytes, n);
        CHECK(send(ends[0], bytes, sizeof bytes, 0) == sizeof bytes);
        /* Two are on their way: the next waits while the last is taken. */
        if (n > 0)
            guest_read_all(ends[1], &answer, 1);
    }
    return NULL;
}

int main(void)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    struct timeval patience = { 5, 0 };
    socklen_t length = sizeof address;
    unsigned char wanted[BYTES];
    int answers[2], ends[2];

    for (int i = 0; i < PARTS; i++)
        parts[i] = (struct iovec){ room[i], PART };
    int in = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), out = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    CHECK(in >= 0 && out >= 0 && pipe(answers) == 0);
    CHECK(bind(in, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(getsockname(in, (struct sockaddr *)&address, &length) == 0);
    CHECK(connect(out, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(setsockopt(in, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
    ends[0] = out;
    ends[1] = answers[0];
    pthread_t sender = guest_start(send_all, ends);
    for (int n = 0; n < DATAGRAMS; n++) {
        memset(room, 0, BYTES);
        CHECK(take(in, n % WAYS) == BYTES);
        fill(wanted, n);
        if (memcmp(room, wanted, BYTES) != 0)
            fprintf(stderr, "datagram %d is another, taken in way %d\n", n, n % WAYS);
        CHECK(memcmp(room, wanted, BYTES) == 0);
        guest_write_all(answers[1], wanted, 1);
    }
    guest_join(sender);
    return guest_ok();
}
