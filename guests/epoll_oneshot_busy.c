// Shows: EPOLLONESHOT on sources that are always ready: from the moment one worker arms a source again it is another's.
// Breaks if: an epoll_ctl that the dead primary had made, and whose event another thread has had since, is made again:
//        then two workers have the same source.
#include "guest.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>

enum { WORKERS = 6, SOURCES = 4, ROUNDS = 6000 };

struct source {
    int fd, is_taken;
    long served;
    pthread_mutex_t lock;
};

static int set, stop[2];
static struct source sources[SOURCES];
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t all_served = PTHREAD_COND_INITIALIZER;
static int empty;

static void serve(struct source *s)
{
    uint64_t one;

    ZERO(pthread_mutex_lock(&s->lock));
    CHECK(!s->is_taken);
    s->is_taken = 1;
    ZERO(pthread_mutex_unlock(&s->lock));
    CHECK(read(s->fd, &one, sizeof one) == sizeof one && one == 1);
    ZERO(pthread_mutex_lock(&s->lock));
    CHECK(s->is_taken);
    s->is_taken = 0;
    if (++s->served == ROUNDS) {
        ZERO(pthread_mutex_lock(&all_lock));
        empty++;
        ZERO(pthread_cond_signal(&all_served));
        ZERO(pthread_mutex_unlock(&all_lock));
    }
    ZERO(pthread_mutex_unlock(&s->lock));
}

static void *work(void *arg)
{
    struct epoll_event event;

    (void)arg;
    for (;;) {
        CHECK(epoll_wait(set, &event, 1, -1) == 1);
        struct source *s = (struct source *)event.data.ptr;
        if (!s)
            return NULL; /* the stop pipe, level-triggered: every worker sees it */
        serve(s);
        event.events = EPOLLIN | EPOLLONESHOT;
        CHECK(epoll_ctl(set, EPOLL_CTL_MOD, s->fd, &event) == 0);
    }
}

int main(void)
{
    struct epoll_event event = { .events = EPOLLIN };
    pthread_t workers[WORKERS];

    set = epoll_create1(0);
    CHECK(set >= 0 && pipe(stop) == 0);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, stop[0], &event) == 0);
    for (int i = 0; i < SOURCES; i++) {
        struct source *s = &sources[i];
        ZERO(pthread_mutex_init(&s->lock, NULL));
        s->fd = eventfd(ROUNDS, EFD_SEMAPHORE);
        CHECK(s->fd >= 0);
        event.events = EPOLLIN | EPOLLONESHOT;
        event.data.ptr = s;
        CHECK(epoll_ctl(set, EPOLL_CTL_ADD, s->fd, &event) == 0);
    }
    for (int i = 0; i < WORKERS; i++)
        workers[i] = guest_start(work, NULL);
    ZERO(pthread_mutex_lock(&all_lock));
    while (empty < SOURCES)
        ZERO(pthread_cond_wait(&all_served, &all_lock));
    ZERO(pthread_mutex_unlock(&all_lock));
    guest_write_all(stop[1], "s", 1);
    for (int i = 0; i < WORKERS; i++)
        guest_join(workers[i]);
    for (int i = 0; i < SOURCES; i++)
        CHECK(sources[i].served == ROUNDS);
    printf("served %d\n", SOURCES * ROUNDS);
    return guest_ok();
}
