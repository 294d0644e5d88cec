// Shows: edge-triggered epoll with drained reads: no edge is missed, and without new bytes there is no new edge.
// Breaks if: an edge consumed by a dead primary is not re-armed: the guest then waits for ever.
#include "guest.h"
#include <sys/epoll.h>
#include <sys/socket.h>

enum { ROUNDS = 220 };

static int pair[2];

static void *peer(void *arg)
{
    char turn;

    (void)arg;
    for (int r = 0; r < ROUNDS; r++) {
        char data[64];
        memset(data, 'a' + r % 26, sizeof data);
        guest_write_all(pair[1], data, sizeof data);
        if (r % 4 == 0)
            guest_pause_us(400);
        guest_read_all(pair[1], &turn, 1);
    }
    return NULL;
}

int main(void)
{
    struct epoll_event event = { .events = EPOLLIN | EPOLLET | EPOLLRDHUP }, ready;
    int set = epoll_create1(0);
    uint64_t digest = 0;

    CHECK(set >= 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0);
    CHECK(fcntl(pair[1], F_SETFL, 0) == 0); /* the peer blocks */
    event.data.fd = pair[0];
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, pair[0], &event) == 0);
    pthread_t t = guest_start(peer, NULL);
    for (int r = 0; r < ROUNDS; r++) {
        char data[64];
        size_t have = 0;
        while (have < sizeof data) {
            CHECK(epoll_wait(set, &ready, 1, -1) == 1 && ready.data.fd == pair[0]);
            for (;;) {
                ssize_t n = read(pair[0], data + have, sizeof data - have);
                if (n <= 0) {
                    CHECK(n == 0 || errno == EAGAIN);
                    break;
                }
                have += (size_t)n;
            }
        }
        for (size_t i = 0; i < sizeof data; i++)
            CHECK(data[i] == 'a' + r % 26);
        digest = guest_mix(digest ^ (uint64_t)data[0]);
        CHECK(epoll_wait(set, &ready, 1, 0) == 0); /* drained, the peer waits for us: no edge */
        guest_write_all(pair[0], "t", 1);
    }
    guest_join(t);
    printf("digest %016lx\n", (unsigned long)digest);
    return guest_ok();
}
