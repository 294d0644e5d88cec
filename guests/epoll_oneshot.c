// Shows: EPOLLONESHOT with several workers on one set: one worker a report, re-armed by MOD; the data is a pointer.
// Breaks if: the kernel keeps the primary's pointers as data and hands them to the standby, whose heap may differ.
#include "guest.h"
#include <sys/epoll.h>
#include <sys/socket.h>

enum { WORKERS = 3, CONNECTIONS = 6, ROUNDS = 40 };

struct connection {
    int fd, peer, busy;
    long served;
    pthread_mutex_t lock;
};

static int set, stop[2];
static struct connection *connections[CONNECTIONS];

static void *worker(void *arg)
{
    struct epoll_event event;

    (void)arg;
    for (;;) {
        CHECK(epoll_wait(set, &event, 1, -1) == 1);
        struct connection *c = (struct connection *)event.data.ptr;
        if (!c)
            return NULL; /* the stop pipe, level-triggered: every worker sees it */
        ZERO(pthread_mutex_lock(&c->lock));
        CHECK(c->busy++ == 0);
        ZERO(pthread_mutex_unlock(&c->lock));
        char byte;
        guest_read_all(c->fd, &byte, 1);
        byte++;
        guest_write_all(c->fd, &byte, 1);
        ZERO(pthread_mutex_lock(&c->lock));
        c->busy--;
        c->served++;
        ZERO(pthread_mutex_unlock(&c->lock));
        event.events = EPOLLIN | EPOLLONESHOT;
        CHECK(epoll_ctl(set, EPOLL_CTL_MOD, c->fd, &event) == 0);
    }
}

int main(void)
{
    struct epoll_event event = { .events = EPOLLIN };
    pthread_t t[WORKERS];
    long served = 0;

    set = epoll_create1(0);
    CHECK(set >= 0 && pipe(stop) == 0);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, stop[0], &event) == 0);
    for (int i = 0; i < CONNECTIONS; i++) {
        struct connection *c = (struct connection *)calloc(1, sizeof *c);
        int pair[2];
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        c->fd = pair[0];
        c->peer = pair[1];
        ZERO(pthread_mutex_init(&c->lock, NULL));
        connections[i] = c;
        event.events = EPOLLIN | EPOLLONESHOT;
        event.data.ptr = c;
        CHECK(epoll_ctl(set, EPOLL_CTL_ADD, c->fd, &event) == 0);
    }
    for (int i = 0; i < WORKERS; i++)
        t[i] = guest_start(worker, NULL);
    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 0; i < CONNECTIONS; i++)
            guest_write_all(connections[i]->peer, &(char){ (char)r }, 1);
        for (int i = 0; i < CONNECTIONS; i++) {
            char back;
            guest_read_all(connections[i]->peer, &back, 1);
            CHECK(back == (char)(r + 1));
        }
        guest_pause_us(300);
    }
    guest_write_all(stop[1], "s", 1);
    for (int i = 0; i < WORKERS; i++)
        guest_join(t[i]);
    for (int i = 0; i < CONNECTIONS; i++)
        served += connections[i]->served;
    printf("served %ld\n", served);
    CHECK(served == CONNECTIONS * ROUNDS);
    return guest_ok();
}
