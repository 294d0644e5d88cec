// Shows: a multithreaded TCP echo server, in two shapes: "epoll" (N workers on one set, one-shot) and
//        "threads" (one thread for each connection).
// Breaks if: a byte read but not answered dies with the primary, or an answer is sent by both copies.
// Usage: echo_server epoll|threads PORT WORKERS; runs until it is killed.
#include "net.h"
#include <sys/epoll.h>

enum { BUFFER = 16384 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long connections, bytes;
static int set, listener;

static void count(long new_connections, long new_bytes)
{
    ZERO(pthread_mutex_lock(&lock));
    connections += new_connections;
    bytes += new_bytes;
    ZERO(pthread_mutex_unlock(&lock));
}

/* Echoes what is there. 0: the peer has closed. A reset peer is a closed one. */
static ssize_t echo(int fd)
{
    char buffer[BUFFER];
    ssize_t n = read(fd, buffer, sizeof buffer);

    if (n < 0) {
        CHECK(errno == ECONNRESET);
        return 0;
    }
    for (ssize_t at = 0, wrote; at < n; at += wrote) {
        wrote = send(fd, buffer + at, (size_t)(n - at), MSG_NOSIGNAL);
        if (wrote < 0)
            return 0;
    }
    count(0, n);
    return n;
}

static void *serve_one(void *arg)
{
    int fd = (int)guest_num(arg);

    while (echo(fd) > 0)
        ;
    CHECK(close(fd) == 0);
    return NULL;
}

static int take(void)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC), on = 1;

    if (fd < 0) {
        CHECK(errno == ECONNABORTED || errno == EINTR);
        return -1;
    }
    CHECK(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
    count(1, 0);
    return fd;
}

struct peer {
    int fd;
};

/* The data of a registration is a pointer; the listener's is null. */
static void *worker(void *arg)
{
    struct epoll_event event;

    (void)arg;
    for (;;) {
        CHECK(epoll_wait(set, &event, 1, -1) == 1);
        struct peer *peer = (struct peer *)event.data.ptr;
        event.events = EPOLLIN | EPOLLONESHOT;
        if (!peer) {
            int fd = take();
            CHECK(epoll_ctl(set, EPOLL_CTL_MOD, listener, &event) == 0);
            if (fd < 0)
                continue;
            peer = (struct peer *)malloc(sizeof *peer);
            peer->fd = fd;
            event.data.ptr = peer;
            CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
        } else if (echo(peer->fd) > 0) {
            CHECK(epoll_ctl(set, EPOLL_CTL_MOD, peer->fd, &event) == 0);
        } else {
            CHECK(close(peer->fd) == 0);
            free(peer);
        }
    }
    return NULL;
}

static void by_epoll(int workers)
{
    struct epoll_event event = { .events = EPOLLIN | EPOLLONESHOT };

    set = epoll_create1(EPOLL_CLOEXEC);
    CHECK(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, listener, &event) == 0);
    for (int i = 1; i < workers; i++)
        guest_start(worker, NULL);
    worker(NULL);
}

static void by_threads(void)
{
    for (;;) {
        int fd = take();
        if (fd >= 0)
            ZERO(pthread_detach(guest_start(serve_one, guest_ptr(fd))));
    }
}

int main(int argc, char **argv)
{
    struct sockaddr_in address = { .sin_family = AF_INET };
    int on = 1;

    CHECK(argc == 4);
    address.sin_port = htons((uint16_t)strtol(argv[2], NULL, 10));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(listener >= 0 && setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
    CHECK(bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, 64) == 0);
    if (strcmp(argv[1], "threads") == 0)
        by_threads();
    CHECK(strcmp(argv[1], "epoll") == 0);
    by_epoll((int)strtol(argv[3], NULL, 10));
    return 1;
}
