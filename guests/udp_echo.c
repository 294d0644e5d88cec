// Shows: UDP over loopback: sendto, recvfrom with the sender's address, connected sockets, ECONNREFUSED, receive timeouts.
// Breaks if: a datagram is sent or taken twice after a failover.
// kit: no-checkpoint datagrams that wait at a socket are lost, as datagrams may be
#include "net.h"

enum { ROUNDS = 100 };

static int server;

static void *echo(void *arg)
{
    char data[2000];

    (void)arg;
    for (int r = 0; r < ROUNDS; r++) {
        struct sockaddr_in from;
        socklen_t length = sizeof from;
        ssize_t n = recvfrom(server, data, sizeof data, 0, (struct sockaddr *)&from, &length);
        CHECK(n > 0 && length == sizeof from);
        CHECK(sendto(server, data, (size_t)n, 0, (struct sockaddr *)&from, length) == n);
    }
    return NULL;
}

int main(void)
{
    struct sockaddr_in to, own, from, nobody;
    socklen_t length = sizeof from;
    char data[2000], back[2000];

    server = net_bound(SOCK_DGRAM, &to);
    int client = net_bound(SOCK_DGRAM, &own);
    pthread_t t = guest_start(echo, NULL);
    for (int r = 0; r < ROUNDS; r++) {
        size_t len = (size_t)(1 + r * 15);
        guest_fill((unsigned char *)data, len, (uint64_t)r);
        CHECK(sendto(client, data, len, 0, (struct sockaddr *)&to, sizeof to) == (ssize_t)len);
        CHECK(recvfrom(client, back, sizeof back, 0, (struct sockaddr *)&from, &length) == (ssize_t)len);
        CHECK(from.sin_port == to.sin_port && memcmp(data, back, len) == 0);
        if (r % 3 == 0)
            guest_pause_us(300);
    }
    guest_join(t);
    struct timeval soon = { 0, 1000 };
    CHECK(setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon) == 0);
    FAILS(recv(client, back, sizeof back, 0), EAGAIN);
    int closed = net_bound(SOCK_DGRAM, &nobody);
    CHECK(connect(client, (struct sockaddr *)&nobody, sizeof nobody) == 0 && close(closed) == 0);
    CHECK(send(client, "x", 1, 0) == 1);
    FAILS(recv(client, back, sizeof back, 0), ECONNREFUSED);
    printf("rounds %d\n", ROUNDS);
    return guest_ok();
}
