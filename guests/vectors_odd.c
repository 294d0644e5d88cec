// Shows: inputs and outputs whose lists or buffers are odd: none, empty, not there, too many, too long. What each answers, and what is left.
// Breaks if: a list that cannot be read counts as an empty one, so that a message is thrown away; or input is taken for which there is no place.
#include "net.h"
#include <sys/mman.h>
#include <sys/uio.h>

enum { KINDS = 6, SHAPES = 14, CALLS = 8, LENGTH = 64, PAGE = 4096 };
enum { READV, RECVMSG, RECVFROM, READ, WRITEV, SENDMSG, SENDTO, WRITE };

static const char *const kinds[KINDS] = { "tcp", "stream", "datagram", "udp", "seqpacket", "pipe" };
static char bytes[LENGTH], *edge;
static struct iovec many[1025], list[2];

static void pair_of(int kind, int pair[2])
{
    struct sockaddr_in address[2];

    switch (kind) {
    case 0:
        net_pair(pair);
        break;
    case 1:
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        break;
    case 2:
        CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
        break;
    case 3:
        for (int i = 0; i < 2; i++)
            pair[i] = net_bound(SOCK_DGRAM, &address[i]);
        for (int i = 0; i < 2; i++)
            CHECK(connect(pair[i], (struct sockaddr *)&address[!i], sizeof address[0]) == 0);
        break;
    case 4:
        CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
        break;
    default:
        CHECK(pipe(pair) == 0);
    }
    for (int i = 0; i < 2; i++)
        CHECK(fcntl(pair[i], F_SETFL, O_NONBLOCK) == 0);
}

static struct iovec *shape(int which, long *count)
{
    void *nowhere = guest_ptr(16);

    list[0] = (struct iovec){ bytes, 2 };
    list[1] = (struct iovec){ bytes + 2, 30 };
    *count = 2;
    switch (which) {
    case 0:
        return list;
    case 1:
        *count = 0;
        return list;
    case 2:
        *count = 1;
        return NULL;
    case 3:
        *count = 0;
        return NULL;
    case 4:
        return nowhere;
    case 5:
        *count = 1025;
        return many;
    case 6:
        list[0].iov_len = list[1].iov_len = 0;
        return list;
    case 7:
        list[0] = (struct iovec){ nowhere, 4 };
        return list;
    case 8:
        list[1] = (struct iovec){ nowhere, 4 };
        return list;
    case 9:
        list[0] = (struct iovec){ edge - 3, SIZE_MAX };
        return list;
    case 10:
        list[0] = (struct iovec){ nowhere, 0 };
        return list;
    case 11:
        *count = -1;
        return list;
    case 12:
        list[0] = (struct iovec){ edge - 3, 8 };
        *count = 1;
        return list;
    default:
        list[1] = (struct iovec){ edge - 3, SIZE_MAX - 4 };
        return list;
    }
}

static long make(int call, int fd, struct iovec *at, long count)
{
    struct msghdr message = { .msg_iov = at, .msg_iovlen = (size_t)count };
    struct sockaddr_storage from;
    socklen_t length = sizeof from;
    int is_list = at == list;

    switch (call) {
    case READV:
        return readv(fd, at, (int)count);
    case RECVMSG:
        return recvmsg(fd, &message, 0);
    case RECVFROM:
        return is_list ? recvfrom(fd, at->iov_base, at->iov_len, 0, (struct sockaddr *)&from, &length) : 0;
    case READ:
        return is_list ? read(fd, at->iov_base, at->iov_len) : 0;
    case WRITEV:
        return writev(fd, at, (int)count);
    case SENDMSG:
        return sendmsg(fd, &message, 0);
    case SENDTO:
        return is_list ? sendto(fd, at->iov_base, at->iov_len, 0, NULL, 0) : 0;
    default:
        return is_list ? write(fd, at->iov_base, at->iov_len) : 0;
    }
}

static void one(int kind, int which, int call)
{
    int pair[2], is_input = call < WRITEV;
    long count;

    pair_of(kind, pair);
    memset(bytes, is_input ? '.' : 'x', sizeof bytes);
    memset(edge - 3, 'y', 3);
    if (is_input)
        CHECK(write(pair[1], "abc", 3) == 3 && write(pair[1], "defg", 4) == 4);
    struct iovec *at = shape(which, &count);
    errno = 0;
    long result = make(call, pair[!is_input], at, count);
    printf("%s %d %d: %ld, %d", kinds[kind], which, call, result, result == -1 ? errno : 0);
    /* What a call that failed has put there is not said. */
    if (is_input && result > 0)
        printf(" %.8s", bytes);
    for (int i = 0; i < 3; i++) {
        char left[LENGTH];
        ssize_t got = read(pair[0], left, sizeof left);

        if (got >= 0)
            printf(" [%.*s]", (int)got, left);
    }
    puts("");
    CHECK(close(pair[0]) == 0 && close(pair[1]) == 0);
}

int main(void)
{
    edge = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(edge != MAP_FAILED && mprotect(edge + PAGE, PAGE, PROT_NONE) == 0);
    edge += PAGE;
    for (int i = 0; i < 1025; i++)
        many[i] = (struct iovec){ bytes, 0 };
    for (int kind = 0; kind < KINDS; kind++)
        for (int which = 0; which < SHAPES; which++) {
            for (int call = 0; call < CALLS; call++)
                if (kind != 5 || call % 4 == READV || call % 4 == READ)
                    one(kind, which, call);
            guest_pause_us(500);
        }
    return guest_ok();
}
