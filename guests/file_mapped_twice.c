// Shows: a file that is mapped in two places, both to be written: what is stored in one of them is in the other, as are waits and wakes.
// Breaks if: a copy has memory of its own for each place: who waits in one of them is not woken in the other.
// kit: allow unprotected a writable shared mapping of a file costs the standby
// kit: no-record a recording ends at a writable shared mapping of a file
// kit: stale beside a recording each place is known for itself, and threads that wait in two of them diverge
#include "guest.h"
#include <sys/mman.h>

enum { PAGE = 4096, BYTES = 16 * PAGE, AT = 5 * PAGE, ROUNDS = 150 };

struct event {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    long asked, answered;
};

static void *answer(void *arg)
{
    struct event *event = arg;

    for (long r = 1; r <= ROUNDS; r++) {
        ZERO(pthread_mutex_lock(&event->lock));
        while (event->asked < r)
            ZERO(pthread_cond_wait(&event->changed, &event->lock));
        event->answered = 3 * event->asked;
        ZERO(pthread_cond_broadcast(&event->changed));
        ZERO(pthread_mutex_unlock(&event->lock));
    }
    return NULL;
}

static void *map(int fd, size_t bytes, off_t from)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, from);

    CHECK(at != MAP_FAILED);
    return at;
}

int main(void)
{
    int fd = open("mapped", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    pthread_mutexattr_t mutex_attr;
    pthread_condattr_t cond_attr;
    long sum = 0;

    CHECK(fd >= 0 && unlink("mapped") == 0 && ftruncate(fd, BYTES) == 0);
    char *whole = map(fd, BYTES, 0);
    struct event *here = (struct event *)(whole + AT), *there = map(fd, PAGE, AT);
    CHECK(close(fd) == 0);
    ZERO(pthread_mutexattr_init(&mutex_attr));
    ZERO(pthread_mutexattr_setpshared(&mutex_attr, PTHREAD_PROCESS_SHARED));
    ZERO(pthread_condattr_init(&cond_attr));
    ZERO(pthread_condattr_setpshared(&cond_attr, PTHREAD_PROCESS_SHARED));
    ZERO(pthread_mutex_init(&here->lock, &mutex_attr));
    ZERO(pthread_cond_init(&here->changed, &cond_attr));
    pthread_t t = guest_start(answer, there);
    for (long r = 1; r <= ROUNDS; r++) {
        guest_pause_us(1000);
        ZERO(pthread_mutex_lock(&here->lock));
        here->asked = r;
        ZERO(pthread_cond_broadcast(&here->changed));
        while (here->answered < 3 * r)
            ZERO(pthread_cond_wait(&here->changed, &here->lock));
        sum += here->answered;
        ZERO(pthread_mutex_unlock(&here->lock));
        whole[2 * PAGE + r] = (char)r;
    }
    guest_join(t);
    printf("sum %ld\n", sum);
    return guest_ok();
}
