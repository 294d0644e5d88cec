/* Load for servers of files: httpload PORT CONNECTIONS REQUESTS PATH BYTES [PER_SECOND]. Each connection is kept and has at
 * most one request under way; with a rate each request has its moment, without one all connections are always busy. Every
 * answer must be 200 and have so many bytes. A server may end a connection that waits for its next request (Apache does when
 * all its workers are busy, also without us): then it is made again, the request repeated, and counted. */
#define _GNU_SOURCE
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

static long requests, asked;
static double per_second;
static uint64_t start;
/* Connections with no request under way, the one that has rested longest first. */
static int idle[CONNECTIONS_MAX], idle_first, idle_count;

static void rests(int at)
{
    idle[(idle_first + idle_count++) % CONNECTIONS_MAX] = at;
}

/* How long until the next request is due, ns: with a rate each has its moment, without one it is now. */
static uint64_t left_ns(void)
{
    uint64_t due = per_second > 0 ? start + (uint64_t)((double)asked * 1e9 / per_second) : 0;
    uint64_t now = per_second > 0 ? now_ns() : 0;
    return due > now ? due - now : 0;
}

static void send_what_is_due(void)
{
    while (idle_count > 0 && asked < requests && left_ns() == 0) {
        send_all(connections[idle[idle_first]].fd, request, request_len);
        idle_first = (idle_first + 1) % CONNECTIONS_MAX;
        idle_count--;
        asked++;
    }
}

/* Until an answer comes, or a request is due. */
static int await(struct pollfd *polls, int count)
{
    uint64_t limit = 60000000000u;
    int is_answer_next = idle_count == 0 || asked == requests;
    uint64_t left = is_answer_next ? limit : left_ns();
    struct timespec wait = {(time_t)(left / 1000000000u), (long)(left % 1000000000u)};
    int ready = ppoll(polls, (nfds_t)count, &wait, NULL);
    if (ready < 0 || (ready == 0 && is_answer_next))
        die("poll");
    return ready;
}

int main(int argc, char **argv)
{
    if (argc != 6 && argc != 7)
        return 2;
    int count = atoi(argv[2]);
    long done = 0;
    port = atoi(argv[1]);
    requests = atol(argv[3]);
    bytes = (size_t)atol(argv[5]);
    per_second = argc == 7 ? atof(argv[6]) : 0;
    if (count < 1 || count > CONNECTIONS_MAX || bytes + 4096 > ROOM)
        return 2;
    request_len = (size_t)snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: bench\r\n\r\n", argv[4]);
    struct pollfd polls[CONNECTIONS_MAX];
    start = now_ns();
    for (int i = 0; i < count; i++) {
        connections[i].fd = connect_loopback(port);
        polls[i] = (struct pollfd){.fd = connections[i].fd, .events = POLLIN};
        rests(i);
    }
    while (done < requests) {
        send_what_is_due();
        if (await(polls, count) == 0)
            continue;
        for (int i = 0; i < count; i++) {
            if (!polls[i].revents)
                continue;
            int is_complete = take(&connections[i]);
            polls[i].fd = connections[i].fd;
            if (!is_complete)
                continue;
            done++;
            connections[i].have = connections[i].body = 0;
            rests(i);
            send_what_is_due();
        }
    }
    printf("requests_per_s %.1f ended %ld\n", (double)done * 1e9 / (double)(now_ns() - start), ended);
    return 0;
}
