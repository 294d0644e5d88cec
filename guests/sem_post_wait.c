// Shows: a bounded buffer on two semaphores: many posters, many waiters, every unit passes once.
// Breaks if: a post is released before it is published: the unit wakes a thread that promotion never hears of.
#include "guest.h"
#include <semaphore.h>

enum { POSTERS = 3, WAITERS = 3, UNITS = 1000, ROOM = 8 };

static sem_t room, filled;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int buffer[ROOM], head, tail;
static long sum;

static void *poster(void *arg)
{
    int base = (int)guest_num(arg) * UNITS;

    for (int i = 0; i < UNITS; i++) {
        CHECK(sem_wait(&room) == 0);
        ZERO(pthread_mutex_lock(&lock));
        buffer[head++ % ROOM] = base + i;
        ZERO(pthread_mutex_unlock(&lock));
        CHECK(sem_post(&filled) == 0);
        if (i % 20 == 0)
            guest_pause_us(400);
    }
    return NULL;
}

static void *waiter(void *arg)
{
    (void)arg;
    for (int i = 0; i < UNITS; i++) {
        CHECK(sem_wait(&filled) == 0);
        ZERO(pthread_mutex_lock(&lock));
        sum += buffer[tail++ % ROOM];
        ZERO(pthread_mutex_unlock(&lock));
        CHECK(sem_post(&room) == 0);
    }
    return NULL;
}

int main(void)
{
    pthread_t t[POSTERS + WAITERS];
    int value;

    CHECK(sem_init(&room, 0, ROOM) == 0);
    CHECK(sem_init(&filled, 0, 0) == 0);
    for (int i = 0; i < POSTERS; i++)
        t[i] = guest_start(poster, guest_ptr(i));
    for (int i = 0; i < WAITERS; i++)
        t[POSTERS + i] = guest_start(waiter, NULL);
    for (int i = 0; i < POSTERS + WAITERS; i++)
        guest_join(t[i]);
    CHECK(sem_getvalue(&room, &value) == 0 && value == ROOM);
    CHECK(sem_getvalue(&filled, &value) == 0 && value == 0);
    printf("sum %ld\n", sum);
    return guest_ok();
}
