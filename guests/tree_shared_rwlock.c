// Shows: process-shared rwlock, barrier and spin lock: two children write in turns between barriers, all read.
// Breaks if: a process that goes on in its other copy still holds, or holds twice, what it held, or is missing at the barrier.
// kit: tree
// kit: allow unprotected memory that a child shares and that is newer than its parent's standby costs that standby
#include "guest.h"
#include <sys/mman.h>
#include <sys/wait.h>

enum { MEMBERS = 3, ROUNDS = 180, WORDS = 64 };

struct box {
    pthread_rwlock_t lock;
    pthread_barrier_t barrier;
    pthread_spinlock_t spin;
    long spun;
    int serial;
    long words[WORDS];
};

static void check(struct box *box, long least)
{
    ZERO(pthread_rwlock_rdlock(&box->lock));
    CHECK(box->words[0] >= least);
    for (int w = 1; w < WORDS; w++)
        CHECK(box->words[w] == box->words[0] + w);
    ZERO(pthread_rwlock_unlock(&box->lock));
}

static void go_round(struct box *box, long me)
{
    for (long r = 0; r < ROUNDS; r++) {
        if (r % MEMBERS == me) {
            ZERO(pthread_rwlock_wrlock(&box->lock));
            for (int w = 0; w < WORDS; w++)
                box->words[w]++;
            ZERO(pthread_rwlock_unlock(&box->lock));
        }
        check(box, r);
        ZERO(pthread_spin_lock(&box->spin));
        box->spun++;
        ZERO(pthread_spin_unlock(&box->spin));
        int rc = pthread_barrier_wait(&box->barrier);
        CHECK(rc == 0 || rc == PTHREAD_BARRIER_SERIAL_THREAD);
        if (rc) {
            CHECK(box->serial == r);
            box->serial++;
        }
        check(box, r + 1);
        guest_pause_us(1500);
    }
}

int main(void)
{
    pthread_rwlockattr_t ra;
    pthread_barrierattr_t ba;
    int status;
    struct box *box =
        (struct box *)mmap(NULL, sizeof *box, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(box != MAP_FAILED);
    ZERO(pthread_rwlockattr_init(&ra));
    ZERO(pthread_rwlockattr_setpshared(&ra, PTHREAD_PROCESS_SHARED));
    ZERO(pthread_rwlock_init(&box->lock, &ra));
    ZERO(pthread_barrierattr_init(&ba));
    ZERO(pthread_barrierattr_setpshared(&ba, PTHREAD_PROCESS_SHARED));
    ZERO(pthread_barrier_init(&box->barrier, &ba, MEMBERS));
    ZERO(pthread_spin_init(&box->spin, PTHREAD_PROCESS_SHARED));
    for (int w = 0; w < WORDS; w++)
        box->words[w] = w;
    for (long m = 1; m < MEMBERS; m++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            go_round(box, m);
            _exit(0);
        }
    }
    go_round(box, 0);
    for (int m = 1; m < MEMBERS; m++)
        CHECK(waitpid(-1, &status, 0) > 0 && status == 0);
    printf("rounds %d, spun %ld\n", box->serial, box->spun);
    CHECK(munmap(box, sizeof *box) == 0);
    return guest_ok();
}
