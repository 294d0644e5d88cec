/* Load for servers of files: httpload PORT CONNECTIONS REQUESTS PATH BYTES. Each connection is kept and has one request
 * under way; every answer must be 200 and have so many bytes. A server may end a connection that waits for its next request
 * (Apache does when all its workers are busy, also without us): then it is made again, the request repeated, and counted. */
#include "net.h"

enum { CONNECTIONS_MAX = 256, ROOM = 65536 };

struct connection {
    int fd;
    size_t have, body;
    char answer[ROOM];
};

static struct connection connections[CONNECTIONS_MAX];
static char request[512];
static size_t request_len, bytes;
static int port;
static long ended;

/* Whether the answer is complete. */
static int take(struct connection *c)
{
    ssize_t got = recv(c->fd, c->answer + c->have, ROOM - 1 - c->have, 0);
    if (got < 0 && errno == EINTR)
        return 0;
    if (got == 0 && c->have == 0) {
        ended++;
        close(c->fd);
        c->fd = connect_loopback(port);
        send_all(c->fd, request, request_len);
        return 0;
    }
    if (got <= 0)
        die("recv");
    c->have += (size_t)got;
    c->answer[c->have] = 0;
    if (c->body == 0) {
        char *end = strstr(c->answer, "\r\n\r\n");
        if (!end)
            return 0;
        if (strncmp(c->answer, "HTTP/1.1 200", 12))
            die("an answer that is not 200");
        c->body = (size_t)(end + 4 - c->answer);
    }
    if (c->have > c->body + bytes)
        die("too long an answer");
    return c->have == c->body + bytes;
}

int main(int argc, char **argv)
{
    if (argc != 6)
        return 2;
    int count = atoi(argv[2]);
    port = atoi(argv[1]);
    long requests = atol(argv[3]), asked = 0, done = 0;
    bytes = (size_t)atol(argv[5]);
    if (count < 1 || count > CONNECTIONS_MAX || bytes + 4096 > ROOM)
        return 2;
    request_len = (size_t)snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: bench\r\n\r\n", argv[4]);
    struct pollfd polls[CONNECTIONS_MAX];
    uint64_t start = now_ns();
    for (int i = 0; i < count; i++) {
        connections[i].fd = connect_loopback(port);
        polls[i] = (struct pollfd){.fd = connections[i].fd, .events = POLLIN};
        if (asked++ < requests)
            send_all(connections[i].fd, request, request_len);
    }
    while (done < requests) {
        if (poll(polls, (nfds_t)count, 60000) <= 0)
            die("poll");
        for (int i = 0; i < count; i++) {
            if (!polls[i].revents)
                continue;
            int is_complete = take(&connections[i]);
            polls[i].fd = connections[i].fd;
            if (!is_complete)
                continue;
            done++;
            connections[i].have = connections[i].body = 0;
            if (asked++ < requests)
                send_all(connections[i].fd, request, request_len);
        }
    }
    printf("requests_per_s %.1f ended %ld\n", (double)done * 1e9 / (double)(now_ns() - start), ended);
    return 0;
}
