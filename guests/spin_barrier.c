// Shows: threads meet at a barrier of their own that spins, behind a lock and behind none.
// Breaks if: a recording in turns waits for whoever spins, or its replay waits for the end of a turn that was passed over.
// kit: serial one thread at a time: who spins waits for what another one stores
#include "guest.h"

enum { THREADS = 3 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile int left = THREADS;
static volatile int second = THREADS;
static long order[THREADS], arrived;

static void meet(volatile int *barrier)
{
    __atomic_sub_fetch(barrier, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(barrier, __ATOMIC_SEQ_CST) > 0) {
    }
}

static void *work(void *arg)
{
    pthread_mutex_lock(&lock);
    left--;
    pthread_mutex_unlock(&lock);
    while (left) {
    }
    pthread_mutex_lock(&lock);
    order[arrived++] = guest_num(arg);
    pthread_mutex_unlock(&lock);
    meet(&second);
    return arg;
}

int main(void)
{
    pthread_t threads[THREADS];
    long sum = 0;

    for (long t = 0; t < THREADS; t++)
        threads[t] = guest_start(work, guest_ptr(t));
    for (long t = 0; t < THREADS; t++)
        guest_join(threads[t]);
    for (long t = 0; t < THREADS; t++)
        sum += order[t];
    CHECK(arrived == THREADS && sum == THREADS * (THREADS - 1) / 2);
    return guest_ok();
}
