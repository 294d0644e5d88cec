// Shows: threads that are created, joined, detached and end all the time while standbys are made of the program.
// Breaks if: a thread that is just being created or is ending at the clone is forgotten, doubled or waited for in vain.
#include "guest.h"

enum { MAKERS = 3, ROUNDS = 120, DETACHED = 40 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static long born, gone;

static void *brief(void *arg)
{
    ZERO(pthread_mutex_lock(&lock));
    born++;
    ZERO(pthread_mutex_unlock(&lock));
    if (guest_num(arg) % 5 == 0)
        guest_pause_us(300);
    return guest_ptr(guest_num(arg) * 3);
}

static void *detached(void *arg)
{
    (void)arg;
    guest_pause_us(1000);
    ZERO(pthread_mutex_lock(&lock));
    if (++gone == DETACHED)
        ZERO(pthread_cond_signal(&ended));
    ZERO(pthread_mutex_unlock(&lock));
    return NULL;
}

static void *make(void *arg)
{
    long sum = 0;

    for (long r = 0; r < ROUNDS; r++) {
        pthread_t a = guest_start(brief, guest_ptr(r)), b = guest_start(brief, guest_ptr(r + guest_num(arg)));
        sum += guest_num(guest_join(b)) + guest_num(guest_join(a));
        if (r % 4 == 0)
            guest_pause_us(400);
    }
    return guest_ptr(sum);
}

int main(void)
{
    pthread_t t[MAKERS];
    long sum = 0;

    for (int i = 0; i < MAKERS; i++)
        t[i] = guest_start(make, guest_ptr(i));
    for (int i = 0; i < DETACHED; i++) {
        ZERO(pthread_detach(guest_start(detached, NULL)));
        guest_pause_us(1500);
    }
    for (int i = 0; i < MAKERS; i++)
        sum += guest_num(guest_join(t[i]));
    ZERO(pthread_mutex_lock(&lock));
    while (gone < DETACHED)
        ZERO(pthread_cond_wait(&ended, &lock));
    ZERO(pthread_mutex_unlock(&lock));
    printf("born %ld, gone %ld, sum %ld\n", born, gone, sum);
    return guest_ok();
}
