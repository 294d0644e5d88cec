// Shows: readers of a rwlock see whole updates only; writers exclude readers and each other.
// Breaks if: a read lock's ticket is replayed after a later writer's, so that a reader sees the future.
#include "guest.h"

enum { READERS = 3, WRITERS = 2, ROUNDS = 50, WORDS = 16 };

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static uint64_t words[WORDS], version;

static void *reader(void *arg)
{
    uint64_t last = 0;

    (void)arg;
    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 0; i < 60; i++) {
            ZERO(pthread_rwlock_rdlock(&lock));
            for (int w = 0; w < WORDS; w++)
                CHECK(words[w] == version * (uint64_t)(w + 1));
            CHECK(version >= last);
            last = version;
            ZERO(pthread_rwlock_unlock(&lock));
        }
        guest_pause_us(300);
    }
    return NULL;
}

static void *writer(void *arg)
{
    (void)arg;
    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 0; i < 20; i++) {
            ZERO(pthread_rwlock_wrlock(&lock));
            version++;
            for (int w = 0; w < WORDS; w++)
                words[w] = version * (uint64_t)(w + 1);
            ZERO(pthread_rwlock_unlock(&lock));
        }
        guest_pause_us(300);
    }
    return NULL;
}

int main(void)
{
    pthread_t t[READERS + WRITERS];

    for (int i = 0; i < READERS + WRITERS; i++)
        t[i] = guest_start(i < READERS ? reader : writer, NULL);
    for (int i = 0; i < READERS + WRITERS; i++)
        guest_join(t[i]);
    printf("version %lu\n", (unsigned long)version);
    CHECK(version == WRITERS * ROUNDS * 20);
    ZERO(pthread_rwlock_destroy(&lock));
    return guest_ok();
}
