// Shows: memory that others may share, with every kind of lock in it, in a process that computes before each operation there.
// Breaks if: a copy that takes over on its way to such an operation makes it, and the log that goes on has not a word of it:
// whoever follows that log goes another way.
#include "guest.h"
#include <semaphore.h>
#include <sys/mman.h>

enum { ROUNDS = 60, STEPS = 12000 };

struct shared {
    pthread_mutex_t mutex;
    pthread_rwlock_t rwlock;
    pthread_spinlock_t spin;
    pthread_barrier_t barrier;
    sem_t sem;
    uint64_t cells[16];
};

static struct shared *shared;
static uint64_t at = 1;

/* A while without a call: a kill mostly comes here. What it changes is told of at the operation behind it. */
static void compute(void)
{
    for (int i = 0; i < STEPS; i++)
        at = guest_mix(at);
    shared->cells[at % 16] += at;
}

int main(void)
{
    pthread_mutexattr_t mutex;
    pthread_rwlockattr_t rwlock;
    pthread_barrierattr_t barrier;
    uint64_t told = 0;
    int ends[2], value;

    shared = (struct shared *)mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    ZERO(pthread_mutexattr_init(&mutex));
    ZERO(pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED));
    ZERO(pthread_mutex_init(&shared->mutex, &mutex));
    ZERO(pthread_rwlockattr_init(&rwlock));
    ZERO(pthread_rwlockattr_setpshared(&rwlock, PTHREAD_PROCESS_SHARED));
    ZERO(pthread_rwlock_init(&shared->rwlock, &rwlock));
    ZERO(pthread_spin_init(&shared->spin, PTHREAD_PROCESS_SHARED));
    ZERO(pthread_barrierattr_init(&barrier));
    ZERO(pthread_barrierattr_setpshared(&barrier, PTHREAD_PROCESS_SHARED));
    ZERO(pthread_barrier_init(&shared->barrier, &barrier, 1));
    ZERO(sem_init(&shared->sem, 1, 0));
    CHECK(pipe(ends) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        compute();
        CHECK(write(ends[1], &at, sizeof at) == sizeof at);
        compute();
        CHECK(read(ends[0], &told, sizeof told) == sizeof told);
        compute();
        ZERO(sem_post(&shared->sem));
        compute();
        ZERO(sem_getvalue(&shared->sem, &value));
        CHECK(value == 1);
        compute();
        ZERO(sem_wait(&shared->sem));
        compute();
        ZERO(pthread_mutex_lock(&shared->mutex));
        compute();
        ZERO(pthread_mutex_unlock(&shared->mutex));
        compute();
        ZERO(pthread_rwlock_wrlock(&shared->rwlock));
        compute();
        ZERO(pthread_rwlock_unlock(&shared->rwlock));
        compute();
        ZERO(pthread_rwlock_rdlock(&shared->rwlock));
        compute();
        ZERO(pthread_rwlock_unlock(&shared->rwlock));
        compute();
        ZERO(pthread_spin_lock(&shared->spin));
        compute();
        ZERO(pthread_spin_unlock(&shared->spin));
        compute();
        RETURNS(pthread_barrier_wait(&shared->barrier), PTHREAD_BARRIER_SERIAL_THREAD);
        if (r % 20 == 0)
            printf("%016lx %016lx\n", (unsigned long)told, (unsigned long)guest_digest(shared->cells, sizeof shared->cells));
    }
    printf("%016lx %016lx\n", (unsigned long)at, (unsigned long)guest_digest(shared->cells, sizeof shared->cells));
    CHECK(munmap(shared, sizeof *shared) == 0);
    return guest_ok();
}
