/* A redis client that counts: gap PORT CONNECTIONS MILLISECONDS. Each connection increments its own key and
 * knows what the answer must be, so a lost or a repeated command shows. Prints the longest time that any
 * connection waited for an answer: what a failover looks like from outside. */
#include "net.h"

enum { CONNECTIONS_MAX = 64 };

struct connection {
    int fd;
    long next;
    uint64_t asked_ns;
    char line[64];
    size_t seen;
};

static struct connection connections[CONNECTIONS_MAX];
static uint64_t longest_ns;
static long answers, wrong, lost;

static void ask(struct connection *c, int index)
{
    char request[64];
    int len = snprintf(request, sizeof request, "INCR gap%d\r\n", index);
    c->asked_ns = now_ns();
    c->seen = 0;
    send_all(c->fd, request, (size_t)len);
}

/* 1 answered, 0 not yet, -1 the connection is gone. */
static int take(struct connection *c)
{
    ssize_t got = recv(c->fd, c->line + c->seen, sizeof c->line - 1 - c->seen, 0);
    if (got < 0 && errno == EINTR)
        return 0;
    if (got <= 0)
        return -1;
    c->seen += (size_t)got;
    c->line[c->seen] = 0;
    if (!strstr(c->line, "\r\n"))
        return 0;
    uint64_t took = now_ns() - c->asked_ns;
    if (took > longest_ns)
        longest_ns = took;
    answers++;
    if (c->line[0] != ':' || atol(c->line + 1) != ++c->next)
        wrong++;
    return 1;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "gap PORT CONNECTIONS MILLISECONDS\n");
        return 2;
    }
    int count = atoi(argv[2]), open_count;
    struct pollfd polls[CONNECTIONS_MAX];
    if (count < 1 || count > CONNECTIONS_MAX)
        return 2;
    for (int i = 0; i < count; i++) {
        connections[i].fd = connect_loopback(atoi(argv[1]));
        polls[i] = (struct pollfd){.fd = connections[i].fd, .events = POLLIN};
        ask(&connections[i], i);
    }
    open_count = count;
    uint64_t end = now_ns() + (uint64_t)atol(argv[3]) * 1000000u;
    while (open_count > 0) {
        uint64_t now = now_ns();
        /* A machine so slow that nobody has been answered yet gets the time it needs. */
        if (now >= end && answers >= count)
            break;
        int wait_ms = now < end ? (int)((end - now) / 1000000u) + 1 : 10;
        if (poll(polls, (nfds_t)count, wait_ms) < 0 && errno != EINTR)
            die("poll");
        for (int i = 0; i < count; i++) {
            if (polls[i].fd < 0 || !polls[i].revents)
                continue;
            int what = take(&connections[i]);
            if (what > 0)
                ask(&connections[i], i);
            if (what < 0) {
                polls[i].fd = -1;
                open_count--;
                lost++;
            }
        }
    }
    /* Who never got an answer any more has waited until now. */
    uint64_t unanswered = 0, now = now_ns();
    for (int i = 0; i < count; i++)
        if (polls[i].fd >= 0 && now - connections[i].asked_ns > unanswered)
            unanswered = now - connections[i].asked_ns;
    printf("name=gap answers=%ld wrong=%ld lost=%ld longest_us=%.1f unanswered_us=%.1f\n", answers, wrong, lost,
           (double)longest_ns / 1e3, (double)unanswered / 1e3);
    return 0;
}
