// Shows: the number of each thread is its own, also where the kernel gives a number away that a thread has kept over a failover.
// Breaks if: a new thread of a promoted copy is called like an elder one: a lock with an owner takes one for the other.
// kit: alone it says which number the kernel gives next: another guest's process has that of one that is to be killed
#include "numbers.h"
#include <signal.h>

enum { ELDERS = 6, ROUNDS = 24 };

static pthread_mutex_t recursive;
static int depth;

static void *elder(void *argument)
{
    elder_begins();
    do {
        ZERO(pthread_mutex_lock(&recursive));
        CHECK(depth++ == 0);
        guest_pause_us(100);
        CHECK(--depth == 0);
        ZERO(pthread_mutex_unlock(&recursive));
        guest_pause_us(900);
    } while (elder_goes_on());
    return argument;
}

static void *younger(void *argument)
{
    pid_t own = (pid_t)syscall(SYS_gettid);

    for (int i = 0; i < ELDERS; i++)
        CHECK(elders[i] != own);
    ZERO(pthread_kill(pthread_self(), 0));
    CHECK(syscall(SYS_tgkill, getpid(), own, 0) == 0);
    ZERO(pthread_mutex_lock(&recursive));
    CHECK(depth++ == 0);
    CHECK(--depth == 0);
    ZERO(pthread_mutex_unlock(&recursive));
    return argument;
}

int main(void)
{
    pthread_mutexattr_t kind;

    ZERO(pthread_mutexattr_init(&kind));
    ZERO(pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE));
    ZERO(pthread_mutex_init(&recursive, &kind));
    elders_start(elder, ELDERS);
    for (int round = 0; round < ROUNDS; round++) {
        /* Without the right to choose, the kernel's own order is as good, and shows less. */
        if (!next_number_is(elders[round % ELDERS]) && round == 0)
            fprintf(stderr, "numbers cannot be chosen\n");
        guest_join(guest_start(younger, NULL));
        guest_pause_us(5000);
    }
    elders_end(ELDERS);
    return guest_ok();
}
