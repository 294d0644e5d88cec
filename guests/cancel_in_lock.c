// Shows: a thread that may be cancelled anywhere is cancelled while it waits for a mutex.
// Breaks if: the log does not say that the thread ended there, and a standby's thread waits for the mutex instead.
#include "guest.h"
#include <semaphore.h>

enum { ROUNDS = 30 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static sem_t begun;

static void *wait_for(void *arg)
{
    ZERO(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL));
    CHECK(sem_post(&begun) == 0);
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
    return arg;
}

int main(void)
{
    long cancelled = 0;

    CHECK(sem_init(&begun, 0, 0) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        ZERO(pthread_mutex_lock(&mutex));
        pthread_t thread = guest_start(wait_for, NULL);
        CHECK(sem_wait(&begun) == 0);
        guest_pause_us(2000);
        ZERO(pthread_cancel(thread));
        cancelled += guest_join(thread) == PTHREAD_CANCELED;
        ZERO(pthread_mutex_unlock(&mutex));
    }
    printf("cancelled %ld\n", cancelled);
    return guest_ok();
}
