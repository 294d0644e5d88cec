// Shows: a thread that is cancelled while its handler runs, or right behind it, ends at its next wait.
// Breaks if: the notice of the cancellation is taken back with that of the signal, and the thread waits for ever.
#include "guest.h"
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>

enum { ROUNDS = 300 };

static sem_t begun, handled;

static void on_signal(int number)
{
    (void)number;
    ZERO(sem_post(&handled));
    /* Whoever waits for that cancels this thread meanwhile. */
    for (volatile int i = 0; i < 200000; i++)
        ;
}

static void *wait_for_end(void *arg)
{
    ZERO(sem_post(&begun));
    for (;;) {
        if (arg)
            pause();
        else
            sleep(100);
    }
    return NULL;
}

int main(void)
{
    struct sigaction action = {.sa_handler = on_signal};

    ZERO(sem_init(&begun, 0, 0) | sem_init(&handled, 0, 0));
    ZERO(sigaction(SIGUSR1, &action, NULL));
    for (int r = 0; r < ROUNDS; r++) {
        pthread_t thread;
        void *result;
        ZERO(pthread_create(&thread, NULL, wait_for_end, guest_ptr(r % 2)));
        while (sem_wait(&begun) != 0)
            ;
        if (r % 3)
            guest_pause_us(r % 3 * 50);
        ZERO(pthread_kill(thread, SIGUSR1));
        while (sem_wait(&handled) != 0)
            ;
        ZERO(pthread_cancel(thread));
        ZERO(pthread_join(thread, &result));
        CHECK(result == PTHREAD_CANCELED);
    }
    return guest_ok();
}
