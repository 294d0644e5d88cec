// Shows: workers with an epoll set each on one listener (EPOLLEXCLUSIVE): each connection is answered once, by whichever came first.
// Breaks if: the exclusive registration cannot be armed again at a promotion, and no worker is woken for a connection any more.
// kit: no-checkpoint it sets no SO_REUSEADDR, and the kernel keeps its port for a minute, as natively
#include "net.h"
#include <sys/epoll.h>

enum { WORKERS = 3, CONNECTIONS = 90 };

static struct sockaddr_in address;
static int listener, stop[2];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long answered;

static void *work(void *arg)
{
    int set = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event want = { .events = EPOLLIN | EPOLLEXCLUSIVE, .data.fd = listener };

    (void)arg;
    CHECK(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, listener, &want) == 0);
    FAILS(epoll_ctl(set, EPOLL_CTL_MOD, listener, &want), EINVAL);
    want = (struct epoll_event){ .events = EPOLLIN, .data.fd = stop[0] };
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, stop[0], &want) == 0);
    for (;;) {
        struct epoll_event got;
        long n;
        CHECK(epoll_wait(set, &got, 1, -1) == 1);
        if (got.data.fd == stop[0])
            break;
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) {
            CHECK(errno == EAGAIN);
            continue;
        }
        guest_read_all(fd, &n, sizeof n);
        n = -n;
        guest_write_all(fd, &n, sizeof n);
        CHECK(close(fd) == 0);
        ZERO(pthread_mutex_lock(&lock));
        answered++;
        ZERO(pthread_mutex_unlock(&lock));
    }
    CHECK(close(set) == 0);
    return NULL;
}

int main(void)
{
    pthread_t workers[WORKERS];

    listener = net_bound(SOCK_STREAM | SOCK_NONBLOCK, &address);
    CHECK(listen(listener, 32) == 0 && pipe2(stop, O_CLOEXEC) == 0);
    for (int i = 0; i < WORKERS; i++)
        workers[i] = guest_start(work, NULL);
    for (long n = 1; n <= CONNECTIONS; n++) {
        int fd = net_connect(&address);
        long back = n;
        guest_write_all(fd, &back, sizeof back);
        guest_read_all(fd, &back, sizeof back);
        CHECK(back == -n && close(fd) == 0);
        guest_pause_us(500);
    }
    CHECK(close(stop[1]) == 0);
    /* The end of the pipe is EPOLLHUP, which every set tells. */
    for (int i = 0; i < WORKERS; i++)
        guest_join(workers[i]);
    CHECK(answered == CONNECTIONS && close(stop[0]) == 0 && close(listener) == 0);
    printf("answered %ld\n", answered);
    return guest_ok();
}
