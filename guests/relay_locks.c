// Shows: numbers handed on in strict turns under mutexes with conditions, semaphores, reader-writer locks and barriers.
// Breaks if: a wake or a post is lost or doubled, or a lock is granted twice, where the other side has gone on since.
#include "relay.h"
#include <semaphore.h>

enum { KINDS = 4, EACH = 2, PAIRS = KINDS * EACH, ROUNDS = 1500 };

static struct slot {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_rwlock_t table;
    pthread_barrier_t both;
    sem_t full[2];
    uint64_t number[2];
    int is_full[2];
} slots[PAIRS];

static void put_cond(struct relay *r, int end, uint64_t number)
{
    struct slot *s = &slots[r->fd[0]];

    ZERO(pthread_mutex_lock(&s->lock));
    CHECK(!s->is_full[end]);
    s->number[end] = number;
    s->is_full[end] = 1;
    ZERO(pthread_cond_signal(&s->changed));
    ZERO(pthread_mutex_unlock(&s->lock));
}

static uint64_t take_cond(struct relay *r, int end)
{
    struct slot *s = &slots[r->fd[0]];

    ZERO(pthread_mutex_lock(&s->lock));
    while (!s->is_full[!end])
        ZERO(pthread_cond_wait(&s->changed, &s->lock));
    s->is_full[!end] = 0;
    uint64_t number = s->number[!end];
    ZERO(pthread_mutex_unlock(&s->lock));
    return number;
}

static void put_sem(struct relay *r, int end, uint64_t number)
{
    struct slot *s = &slots[r->fd[0]];

    s->number[end] = number;
    CHECK(sem_post(&s->full[end]) == 0);
}

static uint64_t take_sem(struct relay *r, int end)
{
    struct slot *s = &slots[r->fd[0]];
    int left;

    while (sem_wait(&s->full[!end]) != 0)
        CHECK(errno == EINTR);
    CHECK(sem_getvalue(&s->full[!end], &left) == 0 && left == 0);
    return s->number[!end];
}

static void put_rwlock(struct relay *r, int end, uint64_t number)
{
    struct slot *s = &slots[r->fd[0]];

    ZERO(pthread_rwlock_wrlock(&s->table));
    s->number[end] = number;
    ZERO(pthread_rwlock_unlock(&s->table));
    CHECK(sem_post(&s->full[end]) == 0);
}

static uint64_t take_rwlock(struct relay *r, int end)
{
    struct slot *s = &slots[r->fd[0]];

    while (sem_wait(&s->full[!end]) != 0)
        CHECK(errno == EINTR);
    ZERO(pthread_rwlock_rdlock(&s->table));
    uint64_t number = s->number[!end];
    ZERO(pthread_rwlock_unlock(&s->table));
    return number;
}

static void meet(struct slot *s)
{
    int rc = pthread_barrier_wait(&s->both);

    CHECK(rc == 0 || rc == PTHREAD_BARRIER_SERIAL_THREAD);
}

static void put_barrier(struct relay *r, int end, uint64_t number)
{
    struct slot *s = &slots[r->fd[0]];

    s->number[end] = number;
    meet(s);
}

static uint64_t take_barrier(struct relay *r, int end)
{
    struct slot *s = &slots[r->fd[0]];

    meet(s);
    return s->number[!end];
}

int main(void)
{
    static void (*const puts_[KINDS])(struct relay *, int, uint64_t) = { put_cond, put_sem, put_rwlock, put_barrier };
    static uint64_t (*const takes[KINDS])(struct relay *, int) = { take_cond, take_sem, take_rwlock, take_barrier };
    struct relay relays[PAIRS];

    for (int i = 0; i < PAIRS; i++) {
        struct slot *s = &slots[i];
        ZERO(pthread_mutex_init(&s->lock, NULL));
        ZERO(pthread_cond_init(&s->changed, NULL));
        ZERO(pthread_rwlock_init(&s->table, NULL));
        ZERO(pthread_barrier_init(&s->both, NULL, 2));
        CHECK(sem_init(&s->full[0], 0, 0) == 0 && sem_init(&s->full[1], 0, 0) == 0);
        relays[i] = (struct relay){ .fd = { i, i }, .put = puts_[i % KINDS], .take = takes[i % KINDS] };
    }
    relay_all(relays, PAIRS, ROUNDS);
    return guest_ok();
}
