// Shows: a signal reaches threads blocked in a mutex, a condition variable, a semaphore, a join, a barrier and a read:
//        the handler runs at once; only sem_wait and read (without SA_RESTART) return EINTR for it.
// Breaks if: a thread asleep in a door gets its signal only when the door opens: nobody opens it before that here.
#include "guest.h"
#include <semaphore.h>
#include <signal.h>

enum { KINDS = 6, ROUNDS = 40 };

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER, lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static sem_t empty;
static int ends[2], notes[2], released;
static __thread char kind;

static void handler(int signal)
{
    int saved = errno;

    (void)signal;
    if (write(notes[1], &kind, 1) != 1)
        _exit(1);
    errno = saved;
}

static void *sleeper(void *arg)
{
    (void)arg;
    while (sem_wait(&empty) != 0)
        CHECK(errno == EINTR);
    return NULL;
}

static void *run(void *arg)
{
    char byte;

    kind = (char)guest_num(arg);
    /* Says "here" itself once, so that main signals a thread that has at least started. */
    handler(0);
    switch (kind) {
    case 0:
        ZERO(pthread_mutex_lock(&held));
        ZERO(pthread_mutex_unlock(&held));
        break;
    case 1:
        ZERO(pthread_mutex_lock(&lock));
        while (!released)
            ZERO(pthread_cond_wait(&never, &lock));
        ZERO(pthread_mutex_unlock(&lock));
        break;
    case 2:
        while (sem_wait(&empty) != 0)
            CHECK(errno == EINTR);
        break;
    case 3:
        guest_join(guest_start(sleeper, NULL));
        break;
    case 4:
        pthread_barrier_wait(&barrier);
        break;
    default:
        while (read(ends[0], &byte, 1) != 1)
            CHECK(errno == EINTR);
    }
    return NULL;
}

static void take(char wanted)
{
    char note;

    guest_read_all(notes[0], &note, 1);
    CHECK(note == wanted);
}

int main(void)
{
    struct sigaction action = { .sa_handler = handler };
    long delivered = 0;

    CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && pipe(ends) == 0 && pipe(notes) == 0);
    CHECK(sem_init(&empty, 0, 0) == 0);
    ZERO(pthread_barrier_init(&barrier, NULL, 2));
    for (int r = 0; r < ROUNDS; r++) {
        char k = (char)(r % KINDS);
        ZERO(pthread_mutex_lock(&held));
        released = 0;
        pthread_t t = guest_start(run, guest_ptr(k));
        take(k);
        for (int i = 0; i < 3; i++) {
            guest_pause_us(r % 2 ? 200 : 0); /* sometimes it is asleep already, sometimes not yet */
            ZERO(pthread_kill(t, SIGUSR1));
            take(k); /* before anything is released */
            delivered++;
        }
        ZERO(pthread_mutex_unlock(&held));
        ZERO(pthread_mutex_lock(&lock));
        released = 1;
        ZERO(pthread_cond_broadcast(&never));
        ZERO(pthread_mutex_unlock(&lock));
        if (k == 2 || k == 3)
            CHECK(sem_post(&empty) == 0);
        if (k == 4)
            pthread_barrier_wait(&barrier);
        if (k == 5)
            guest_write_all(ends[1], "x", 1);
        guest_join(t);
        guest_pause_us(200);
    }
    printf("delivered %ld\n", delivered);
    return guest_ok();
}
