// Shows: shared anonymous memory, with process-shared locks in it, that threads change while a standby is made.
// Breaks if: the copy goes on sharing it with the primary: every change then counts twice, and locks are held by strangers.
// kit: stale a standby has a copy of its own of what is shared, as it was, and waits for no ticket of a lock in it
#include "guest.h"
#include <sys/mman.h>

enum { THREADS = 3, ROUNDS = 80, INNER = 20, CELLS = 4096 };

struct shared {
    pthread_mutex_t lock;
    pthread_cond_t turn;
    long whose, total;
    uint32_t cells[CELLS];
};

static struct shared *shared;

static void *run(void *arg)
{
    long me = guest_num(arg);

    for (int r = 0; r < ROUNDS; r++) {
        ZERO(pthread_mutex_lock(&shared->lock));
        while (shared->whose != me)
            ZERO(pthread_cond_wait(&shared->turn, &shared->lock));
        for (int i = 0; i < INNER; i++) {
            uint64_t at = guest_mix((uint64_t)shared->total) % CELLS;
            shared->cells[at] = shared->cells[at] * 31 + (uint32_t)shared->total;
            shared->total++;
        }
        shared->whose = (me + 1) % THREADS;
        ZERO(pthread_cond_broadcast(&shared->turn));
        ZERO(pthread_mutex_unlock(&shared->lock));
        guest_pause_us(500);
    }
    return NULL;
}

int main(void)
{
    pthread_mutexattr_t mutex;
    pthread_condattr_t cond;
    pthread_t t[THREADS];

    shared = (struct shared *)mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    ZERO(pthread_mutexattr_init(&mutex));
    ZERO(pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED));
    ZERO(pthread_mutex_init(&shared->lock, &mutex));
    ZERO(pthread_condattr_init(&cond));
    ZERO(pthread_condattr_setpshared(&cond, PTHREAD_PROCESS_SHARED));
    ZERO(pthread_cond_init(&shared->turn, &cond));
    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, guest_ptr(i));
    for (int i = 0; i < THREADS; i++)
        guest_join(t[i]);
    printf("total %ld, digest %016lx\n", shared->total, (unsigned long)guest_digest(shared->cells, sizeof shared->cells));
    CHECK(munmap(shared, sizeof *shared) == 0);
    return guest_ok();
}
