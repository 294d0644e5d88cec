// Shows: a process-shared mutex and condition variable in shared anonymous memory, used by threads of one process.
// Breaks if: shared anonymous memory is one state for primary and standby, so that the replay locks the real lock twice.
// kit: stale a standby has a copy of its own of what is shared, as it was, and waits for no ticket of a lock in it
#include "guest.h"
#include <sys/mman.h>

enum { ROUNDS = 300 };

static struct box {
    pthread_mutex_t lock;
    pthread_cond_t turned;
    int turn;
    long passes;
} *box;

static void *run(void *arg)
{
    int me = (int)guest_num(arg);

    for (int r = 0; r < ROUNDS; r++) {
        ZERO(pthread_mutex_lock(&box->lock));
        while (box->turn != me)
            ZERO(pthread_cond_wait(&box->turned, &box->lock));
        box->turn = 1 - me;
        box->passes++;
        ZERO(pthread_cond_signal(&box->turned));
        ZERO(pthread_mutex_unlock(&box->lock));
        if (r % 4 == 0)
            guest_pause_us(300);
    }
    return NULL;
}

int main(void)
{
    pthread_mutexattr_t ma;
    pthread_condattr_t ca;
    pthread_t a, b;

    box = (struct box *)mmap(NULL, sizeof *box, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(box != MAP_FAILED);
    ZERO(pthread_mutexattr_init(&ma));
    ZERO(pthread_mutexattr_setpshared(&ma, PTHREAD_PROCESS_SHARED));
    ZERO(pthread_mutex_init(&box->lock, &ma));
    ZERO(pthread_condattr_init(&ca));
    ZERO(pthread_condattr_setpshared(&ca, PTHREAD_PROCESS_SHARED));
    ZERO(pthread_cond_init(&box->turned, &ca));
    a = guest_start(run, guest_ptr(0));
    b = guest_start(run, guest_ptr(1));
    guest_join(a);
    guest_join(b);
    printf("passes %ld\n", box->passes);
    CHECK(munmap(box, sizeof *box) == 0);
    return guest_ok();
}
