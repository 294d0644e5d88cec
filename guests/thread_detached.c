// Shows: detached threads, by attribute and by pthread_detach from inside and outside, end on their own and are counted.
// Breaks if: a detached thread's end is not an event, so that its slot is taken over while its ring is still being read.
#include "guest.h"

enum { ROUNDS = 60, EACH = 6 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t finished = PTHREAD_COND_INITIALIZER;
static long ended;

static void *run(void *arg)
{
    if (guest_num(arg) == 1)
        ZERO(pthread_detach(pthread_self()));
    ZERO(pthread_mutex_lock(&lock));
    ended++;
    ZERO(pthread_cond_signal(&finished));
    ZERO(pthread_mutex_unlock(&lock));
    return NULL;
}

int main(void)
{
    pthread_attr_t detached;

    ZERO(pthread_attr_init(&detached));
    ZERO(pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED));
    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 0; i < EACH; i++) {
            pthread_t t;
            int how = i % 3; /* 0: attribute, 1: detaches itself, 2: detached by main */
            ZERO(pthread_create(&t, how == 0 ? &detached : NULL, run, guest_ptr(how)));
            if (how == 2)
                ZERO(pthread_detach(t));
        }
        ZERO(pthread_mutex_lock(&lock));
        while (ended != (long)(r + 1) * EACH)
            ZERO(pthread_cond_wait(&finished, &lock));
        ZERO(pthread_mutex_unlock(&lock));
        guest_pause_us(300);
    }
    printf("ended %ld\n", ended);
    return guest_ok();
}
