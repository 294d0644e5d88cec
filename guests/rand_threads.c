// Shows: rand() and random() from many threads share one sequence under a lock inside libc; drand48 under the guest's lock.
// Breaks if: that hidden lock is not a door: who drew which number then differs between the copies.
#include "guest.h"

enum { THREADS = 3, ROUNDS = 60, DRAWS = 100 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t all, reals;

static void *run(void *arg)
{
    uint64_t own = 0, mine = 0;

    (void)arg;
    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 0; i < DRAWS; i++)
            own += (uint64_t)(i % 2 ? rand() : random());
        ZERO(pthread_mutex_lock(&lock));
        mine += (uint64_t)(drand48() * 1048576.0);
        ZERO(pthread_mutex_unlock(&lock));
        /* What this thread drew leaves it here, so a copy that drew something else shows. */
        int ends[2];
        uint64_t back;
        CHECK(pipe(ends) == 0);
        guest_write_all(ends[1], &own, sizeof own);
        guest_read_all(ends[0], &back, sizeof back);
        CHECK(back == own && close(ends[0]) == 0 && close(ends[1]) == 0);
        guest_pause_us(300);
    }
    ZERO(pthread_mutex_lock(&lock));
    all += own;
    reals += mine;
    ZERO(pthread_mutex_unlock(&lock));
    return NULL;
}

int main(void)
{
    pthread_t t[THREADS];

    srand(12345);
    srand48(999);
    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, NULL);
    for (int i = 0; i < THREADS; i++)
        guest_join(t[i]);
    printf("sum of all draws %lu, of the reals %lu\n", (unsigned long)all, (unsigned long)reals);
    return guest_ok();
}
