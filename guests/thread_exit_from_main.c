// Shows: main leaves by pthread_exit; the other threads go on, and the last one's end ends the process with status 0.
// Breaks if: the end of the first thread is taken for the end of the group (its robust futex fires: OWNER_DIED is not death).
// kit: allow diverged which thread is the last one, and runs the exit handlers, is decided behind every door
// kit: allow standby_lost as above
// kit: allow unprotected as above
// kit: no-kill without a standby nobody takes over
// kit: no-record which thread is the last one, and runs the exit handlers, is decided behind every door
#include "guest.h"

enum { THREADS = 3, ROUNDS = 60 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int left = THREADS;
static long work;

static void *run(void *arg)
{
    pthread_t main_thread = *(pthread_t *)arg;
    int last;

    for (int r = 0; r < ROUNDS; r++) {
        ZERO(pthread_mutex_lock(&lock));
        work++;
        ZERO(pthread_mutex_unlock(&lock));
        guest_pause_us(500);
    }
    ZERO(pthread_mutex_lock(&lock));
    last = --left == 0;
    ZERO(pthread_mutex_unlock(&lock));
    if (last) {
        void *result;
        ZERO(pthread_join(main_thread, &result));
        CHECK(guest_num(result) == 77);
        printf("work %ld\n", work);
        guest_ok();
    }
    return NULL;
}

int main(void)
{
    static pthread_t self;

    self = pthread_self();
    for (int i = 0; i < THREADS; i++)
        guest_start(run, &self);
    pthread_exit(guest_ptr(77));
}
