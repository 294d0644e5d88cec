// Shows: numbers handed on in strict turns through streams: socket pairs, TCP with read and write and with send and recv.
// Breaks if: a transfer in doubt is made again, or lost, after its peer has answered it.
#include "net.h"
#include "relay.h"

enum { KINDS = 3, EACH = 2, ROUNDS = 2500 };

static void put_plain(struct relay *r, int end, uint64_t number) { guest_write_all(r->fd[end], &number, sizeof number); }

static uint64_t take_plain(struct relay *r, int end)
{
    uint64_t number;

    guest_read_all(r->fd[end], &number, sizeof number);
    return number;
}

static void put_send(struct relay *r, int end, uint64_t number)
{
    CHECK(send(r->fd[end], &number, sizeof number, MSG_NOSIGNAL) == sizeof number);
}

static uint64_t take_recv(struct relay *r, int end)
{
    uint64_t number;

    CHECK(recv(r->fd[end], &number, sizeof number, MSG_WAITALL) == sizeof number);
    return number;
}

int main(void)
{
    struct relay relays[KINDS * EACH];

    for (int i = 0; i < KINDS * EACH; i++) {
        struct relay *r = &relays[i];
        if (i % KINDS == 0)
            CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, r->fd) == 0);
        else
            net_pair(r->fd);
        r->put = i % KINDS == 2 ? put_send : put_plain;
        r->take = i % KINDS == 2 ? take_recv : take_plain;
    }
    relay_all(relays, KINDS * EACH, ROUNDS);
    return guest_ok();
}
