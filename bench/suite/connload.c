/* Load over many connections: connload KIND PORT CONNECTIONS REQUESTS, of kind redis, memcached or http. All connections are made
 * and have one answer each, then "ready" is printed; a line on standard input begins the load, in which every connection always
 * has one request under way. Each answer must be like the first one; in http, of the same length and 200. */
#define _GNU_SOURCE
#include "net.h"
#include <fcntl.h>
#include <sys/epoll.h>

enum { ROOM = 4096, VALUE = 64, EVENTS = 512 };

struct connection {
    int fd;
    size_t have;
    long left;
    char answer[ROOM];
};

static const char *request;
static int is_redis, is_http;
static char first[ROOM];
static size_t first_len;

/* How long the answer is, once its beginning is there; 0 before. */
static size_t length_of(char *answer, size_t have)
{
    answer[have] = 0;
    if (!is_http) {
        const char *begin = is_redis ? "$64\r\n" : "VALUE key 0 64\r\n", *end = is_redis ? "\r\n" : "\r\nEND\r\n";
        size_t len = strlen(begin) + VALUE + strlen(end);
        return have >= len && !strncmp(answer, begin, strlen(begin)) && !strcmp(answer + len - strlen(end), end) ? len : 0;
    }
    char *body = strstr(answer, "\r\n\r\n"), *length = strcasestr(answer, "\r\ncontent-length:");
    if (!body || !length || length > body)
        return 0;
    if (strncmp(answer, "HTTP/1.1 200", 12))
        die("an answer that is not 200");
    return (size_t)(body + 4 - answer) + (size_t)atol(length + strlen("\r\ncontent-length:"));
}

static int take(struct connection *c)
{
    ssize_t got = recv(c->fd, c->answer + c->have, ROOM - 1 - c->have, 0);
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return 0;
    if (got == 0)
        errno = ECONNABORTED; /* ended by the server */
    if (got <= 0)
        die("recv");
    c->have += (size_t)got;
    size_t len = first_len ? first_len : length_of(c->answer, c->have);
    if (len == 0 || c->have < len)
        return 0;
    int is_same = first_len == 0 || !memcmp(c->answer, first, is_http ? strlen("HTTP/1.1 200") : len);
    if (c->have > len || !is_same) {
        fprintf(stderr, "wrong answer: %.*s\n", (int)c->have, c->answer);
        exit(3);
    }
    memcpy(first, c->answer, first_len = len);
    c->have = 0;
    return 1;
}

/* The key that all ask for. */
static void fill(int port)
{
    char words[256], value[VALUE + 1], answer[64];
    memset(value, 'v', VALUE);
    value[VALUE] = 0;
    snprintf(words, sizeof words, is_redis ? "SET key %s\r\n" : "set key 0 0 64\r\n%s\r\n", value);
    int fd = connect_loopback(port);
    send_all(fd, words, strlen(words));
    if (recv(fd, answer, sizeof answer, 0) <= 0)
        die("the first answer");
    close(fd);
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "connload KIND PORT CONNECTIONS REQUESTS\n");
        return 2;
    }
    is_redis = !strcmp(argv[1], "redis");
    is_http = !strcmp(argv[1], "http");
    int port = atoi(argv[2]);
    long count = atol(argv[3]), requests = atol(argv[4]), answers = 0, wanted = 0;
    if (count < 1 || requests < count)
        return 2;
    if (!is_http)
        fill(port);
    request = is_http ? "GET /page HTTP/1.1\r\nHost: bench\r\n\r\n" : is_redis ? "GET key\r\n" : "get key\r\n";
    struct connection *all = (struct connection *)calloc((size_t)count, sizeof *all);
    int epoll = epoll_create1(0);
    if (!all || epoll < 0)
        die("no room");
    for (long i = 0; i < count; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &all[i]};
        all[i].fd = connect_loopback(port);
        send_all(all[i].fd, request, strlen(request));
        while (!take(&all[i]))
            ;
        if (fcntl(all[i].fd, F_SETFL, O_NONBLOCK) || epoll_ctl(epoll, EPOLL_CTL_ADD, all[i].fd, &event))
            die("epoll");
        all[i].left = requests / count;
        wanted += all[i].left;
    }
    printf("ready\n");
    fflush(stdout);
    if (getchar() == EOF)
        return 2;
    uint64_t start = now_ns();
    for (long i = 0; i < count; i++)
        send_all(all[i].fd, request, strlen(request));
    while (answers < wanted) {
        struct epoll_event events[EVENTS];
        int ready = epoll_wait(epoll, events, EVENTS, 60000);
        if (ready <= 0 && !(ready < 0 && errno == EINTR))
            die("no answer for a minute");
        for (int i = 0; i < ready; i++) {
            struct connection *c = (struct connection *)events[i].data.ptr;
            if (!take(c))
                continue;
            answers++;
            if (--c->left > 0)
                send_all(c->fd, request, strlen(request));
        }
    }
    printf("requests=%ld per_s=%.0f\n", answers, (double)answers * 1e9 / (double)(now_ns() - start));
    return 0;
}
