// Shows: threads add and delete descriptors on one set while another waits on it; data pointers stay true.
// Breaks if: registrations and reports are logged without an order between them: a report for a registration not yet made.
// kit: no-kill after a failover an edge may be reported a second time, and this guest counts them
// kit: no-checkpoint a set tells an edge once more that it has told before
#include "guest.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>

enum { THREADS = 3, ROUNDS = 60 };

struct source {
    int fd;
    long thread, fired;
    pthread_mutex_t lock;
    pthread_cond_t seen;
};

static int set, stop;

static void *adder(void *arg)
{
    for (int r = 0; r < ROUNDS; r++) {
        struct source *s = (struct source *)calloc(1, sizeof *s);
        struct epoll_event event = { .events = EPOLLIN | EPOLLET, .data.ptr = s };
        s->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        s->thread = guest_num(arg);
        ZERO(pthread_mutex_init(&s->lock, NULL));
        ZERO(pthread_cond_init(&s->seen, NULL));
        CHECK(s->fd >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, s->fd, &event) == 0);
        CHECK(eventfd_write(s->fd, 1) == 0);
        ZERO(pthread_mutex_lock(&s->lock));
        while (!s->fired)
            ZERO(pthread_cond_wait(&s->seen, &s->lock));
        ZERO(pthread_mutex_unlock(&s->lock));
        /* The one edge has been reported, so nobody holds the pointer after DEL. */
        CHECK(epoll_ctl(set, EPOLL_CTL_DEL, s->fd, NULL) == 0 && close(s->fd) == 0);
        CHECK(s->fired == 1);
        ZERO(pthread_cond_destroy(&s->seen));
        ZERO(pthread_mutex_destroy(&s->lock));
        free(s);
        if (r % 2)
            guest_pause_us(300);
    }
    return NULL;
}

static void *waiter(void *arg)
{
    long *fired = (long *)arg;

    for (;;) {
        struct epoll_event ready[4];
        int n = epoll_wait(set, ready, 4, -1);
        CHECK(n > 0);
        for (int i = 0; i < n; i++) {
            struct source *s = (struct source *)ready[i].data.ptr;
            if (!s)
                return NULL;
            CHECK(s->thread >= 0 && s->thread < THREADS);
            fired[s->thread]++;
            ZERO(pthread_mutex_lock(&s->lock));
            s->fired++;
            ZERO(pthread_cond_signal(&s->seen));
            ZERO(pthread_mutex_unlock(&s->lock));
        }
    }
}

int main(void)
{
    struct epoll_event event = { .events = EPOLLIN };
    pthread_t t[THREADS];
    long fired[THREADS] = { 0 };

    set = epoll_create1(0);
    stop = eventfd(0, 0);
    CHECK(set >= 0 && stop >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, stop, &event) == 0);
    pthread_t w = guest_start(waiter, fired);
    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(adder, guest_ptr(i));
    for (int i = 0; i < THREADS; i++)
        guest_join(t[i]);
    CHECK(eventfd_write(stop, 1) == 0);
    guest_join(w);
    for (int i = 0; i < THREADS; i++)
        printf("thread %d: %ld\n", i, fired[i]);
    return guest_ok();
}
