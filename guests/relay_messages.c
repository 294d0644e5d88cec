// Shows: numbers handed on in strict turns through messages: local datagrams and sequenced packets, UDP, with vectors too.
// Breaks if: a message in doubt is sent, or waited for, a second time after its receiver has answered it.
#include "net.h"
#include "relay.h"

enum { KINDS = 4, EACH = 2, ROUNDS = 2000 };

static void put(struct relay *r, int end, uint64_t number)
{
    CHECK(send(r->fd[end], &number, sizeof number, 0) == sizeof number);
}

static uint64_t take(struct relay *r, int end)
{
    uint64_t number;

    CHECK(recv(r->fd[end], &number, sizeof number, 0) == sizeof number);
    return number;
}

static void put_message(struct relay *r, int end, uint64_t number)
{
    uint32_t halves[2] = { (uint32_t)number, (uint32_t)(number >> 32) };
    struct iovec parts[2] = { { &halves[0], 4 }, { &halves[1], 4 } };
    struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };

    CHECK(sendmsg(r->fd[end], &message, 0) == 8);
}

static uint64_t take_message(struct relay *r, int end)
{
    uint32_t halves[2];
    struct iovec parts[2] = { { &halves[0], 4 }, { &halves[1], 4 } };
    struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };

    CHECK(recvmsg(r->fd[end], &message, 0) == 8);
    return halves[0] | (uint64_t)halves[1] << 32;
}

int main(void)
{
    struct relay relays[KINDS * EACH];

    for (int i = 0; i < KINDS * EACH; i++) {
        struct relay *r = &relays[i];
        struct sockaddr_in address[2];
        *r = (struct relay){ .put = put, .take = take };
        switch (i % KINDS) {
        case 0:
            CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, r->fd) == 0);
            break;
        case 1:
            CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, r->fd) == 0);
            break;
        case 2:
            CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, r->fd) == 0);
            r->put = put_message;
            r->take = take_message;
            break;
        default:
            for (int end = 0; end < 2; end++)
                r->fd[end] = net_bound(SOCK_DGRAM, &address[end]);
            for (int end = 0; end < 2; end++)
                CHECK(connect(r->fd[end], (struct sockaddr *)&address[!end], sizeof address[0]) == 0);
        }
    }
    relay_all(relays, KINDS * EACH, ROUNDS);
    return guest_ok();
}
