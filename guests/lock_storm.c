// Shows: locks as fast as two threads can take them, for hundreds of thousands of events without a pause.
// Breaks if: a full ring blocks the primary for ever, loses an event, or wraps over one that is still unread.
#include "guest.h"

enum { THREADS = 2, LOCKS = 800000 };

static pthread_mutex_t shared = PTHREAD_MUTEX_INITIALIZER;
static uint64_t state = 1;

static void *run(void *arg)
{
    pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
    uint64_t mine = 0;

    (void)arg;
    for (int i = 0; i < LOCKS; i++) {
        ZERO(pthread_mutex_lock(&own));
        mine++;
        ZERO(pthread_mutex_unlock(&own));
        if (i % 4 == 0) {
            ZERO(pthread_mutex_lock(&shared));
            state = guest_mix(state);
            ZERO(pthread_mutex_unlock(&shared));
        }
    }
    CHECK(mine == LOCKS);
    return NULL;
}

int main(void)
{
    pthread_t t[THREADS];

    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, NULL);
    for (int i = 0; i < THREADS; i++)
        guest_join(t[i]);
    printf("state %016lx\n", (unsigned long)state);
    CHECK(state == guest_work(1, THREADS * LOCKS / 4));
    return guest_ok();
}
