// Shows: a timer armed by one thread and heard by another, in strict turns: each arming is heard once.
// Breaks if: a timerfd_settime that the dead primary had made, and whose end the other thread has had since, is made again.
#include "guest.h"
#include <semaphore.h>
#include <sys/timerfd.h>

enum { PAIRS = 3, ROUNDS = 2000 };

struct pair {
    int fd, is_armed;
    pthread_mutex_t lock;
    sem_t heard;
};

static int set_armed(struct pair *p, int value)
{
    ZERO(pthread_mutex_lock(&p->lock));
    int before = p->is_armed;
    p->is_armed = value;
    ZERO(pthread_mutex_unlock(&p->lock));
    return before;
}

static void *arm(void *arg)
{
    struct pair *p = (struct pair *)arg;
    struct itimerspec at_once = { { 0, 0 }, { 0, 1 } };

    for (int r = 0; r < ROUNDS; r++) {
        CHECK(!set_armed(p, 1));
        CHECK(timerfd_settime(p->fd, 0, &at_once, NULL) == 0);
        while (sem_wait(&p->heard) != 0)
            CHECK(errno == EINTR);
    }
    return NULL;
}

static void *hear(void *arg)
{
    struct pair *p = (struct pair *)arg;
    uint64_t n;

    for (int r = 0; r < ROUNDS; r++) {
        CHECK(read(p->fd, &n, sizeof n) == sizeof n && n == 1);
        CHECK(set_armed(p, 0));
        CHECK(sem_post(&p->heard) == 0);
    }
    return NULL;
}

int main(void)
{
    struct pair pairs[PAIRS];
    pthread_t threads[2 * PAIRS];
    uint64_t n;

    memset(pairs, 0, sizeof pairs);
    for (int i = 0; i < PAIRS; i++) {
        struct pair *p = &pairs[i];
        p->fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
        CHECK(p->fd >= 0 && sem_init(&p->heard, 0, 0) == 0);
        ZERO(pthread_mutex_init(&p->lock, NULL));
    }
    for (int i = 0; i < PAIRS; i++) {
        threads[2 * i] = guest_start(hear, &pairs[i]);
        threads[2 * i + 1] = guest_start(arm, &pairs[i]);
    }
    for (int i = 0; i < 2 * PAIRS; i++)
        guest_join(threads[i]);
    for (int i = 0; i < PAIRS; i++) {
        CHECK(fcntl(pairs[i].fd, F_SETFL, O_NONBLOCK) == 0);
        FAILS(read(pairs[i].fd, &n, sizeof n), EAGAIN);
    }
    printf("heard %d\n", PAIRS * ROUNDS);
    return guest_ok();
}
