// Shows: TCP over loopback: one accept loop, a thread for each connection, requests answered in order and once.
// Breaks if: the kernel's socket has more or fewer bytes than the log says and the difference is not settled.
#include "net.h"

enum { CLIENTS = 3, CONNECTIONS = 5, REQUESTS = 25 };

static struct sockaddr_in address;

static void *serve(void *arg)
{
    int fd = (int)guest_num(arg);
    uint64_t request;
    size_t have = 0;

    for (;;) {
        ssize_t n = read(fd, (char *)&request + have, sizeof request - have);
        CHECK(n >= 0);
        if (n == 0)
            break;
        have += (size_t)n;
        if (have == sizeof request) {
            request = guest_mix(request);
            guest_write_all(fd, &request, sizeof request);
            have = 0;
        }
    }
    CHECK(have == 0 && close(fd) == 0);
    return NULL;
}

static void *client(void *arg)
{
    uint64_t x = (uint64_t)guest_num(arg), answer;

    for (int c = 0; c < CONNECTIONS; c++) {
        int fd = net_connect(&address);
        for (int r = 0; r < REQUESTS; r++) {
            guest_write_all(fd, &x, 5);
            guest_write_all(fd, (char *)&x + 5, 3);
            guest_read_all(fd, &answer, sizeof answer);
            CHECK(answer == guest_mix(x));
            x = answer;
            if (r % 4 == 0)
                guest_pause_us(300);
        }
        CHECK(shutdown(fd, SHUT_WR) == 0);
        CHECK(read(fd, &answer, 1) == 0);
        CHECK(close(fd) == 0);
    }
    return guest_ptr((long)(x >> 1));
}

int main(void)
{
    pthread_t t[CLIENTS], server[CLIENTS * CONNECTIONS];
    int listener = net_bound(SOCK_STREAM, &address);

    CHECK(listen(listener, 16) == 0);
    for (int i = 0; i < CLIENTS; i++)
        t[i] = guest_start(client, guest_ptr(i));
    for (int i = 0; i < CLIENTS * CONNECTIONS; i++) {
        struct sockaddr_in peer;
        socklen_t length = sizeof peer;
        int fd = accept(listener, (struct sockaddr *)&peer, &length);
        CHECK(fd >= 0 && peer.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
        server[i] = guest_start(serve, guest_ptr(fd));
    }
    for (int i = 0; i < CLIENTS; i++)
        printf("client %d: %016lx\n", i, guest_num(guest_join(t[i])));
    for (int i = 0; i < CLIENTS * CONNECTIONS; i++)
        guest_join(server[i]);
    CHECK(close(listener) == 0);
    return guest_ok();
}
