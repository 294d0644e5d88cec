// Shows: the number of each thread is its own, also where the kernel gives a number away that a thread has kept over a failover.
// Breaks if: a new thread of a promoted copy is called like an elder one: a lock with an owner takes one for the other.
#include "guest.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>

enum { ELDERS = 6, ROUNDS = 24 };

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER, recursive;
static pid_t elders[ELDERS];
static int begun, is_over, depth;

static void *elder(void *argument)
{
    int over = 0;

    ZERO(pthread_mutex_lock(&guard));
    elders[begun++] = (pid_t)syscall(SYS_gettid);
    ZERO(pthread_mutex_unlock(&guard));
    while (!over) {
        ZERO(pthread_mutex_lock(&recursive));
        CHECK(depth++ == 0);
        guest_pause_us(100);
        CHECK(--depth == 0);
        ZERO(pthread_mutex_unlock(&recursive));
        guest_pause_us(900);
        ZERO(pthread_mutex_lock(&guard));
        over = is_over;
        ZERO(pthread_mutex_unlock(&guard));
    }
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

/* The next thread that is made gets this number if it is free, and nobody else makes one meanwhile. Without the right to say so the
 * kernel's own order is as good, and shows less. */
static void next_number_is(pid_t number)
{
    char text[16];
    int length = snprintf(text, sizeof text, "%d", (int)number - 1);
    int fd = open("/proc/sys/kernel/ns_last_pid", O_WRONLY | O_CLOEXEC);

    if (fd >= 0) {
        if (write(fd, text, (size_t)length) != length)
            fprintf(stderr, "numbers cannot be chosen\n");
        close(fd);
    }
}

int main(void)
{
    pthread_t threads[ELDERS], thread;
    pthread_mutexattr_t kind;

    ZERO(pthread_mutexattr_init(&kind));
    ZERO(pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE));
    ZERO(pthread_mutex_init(&recursive, &kind));
    for (int i = 0; i < ELDERS; i++)
        threads[i] = guest_start(elder, NULL);
    for (int seen = 0; seen < ELDERS; guest_pause_us(100)) {
        ZERO(pthread_mutex_lock(&guard));
        seen = begun;
        ZERO(pthread_mutex_unlock(&guard));
    }
    for (int round = 0; round < ROUNDS; round++) {
        next_number_is(elders[round % ELDERS]);
        thread = guest_start(younger, NULL);
        ZERO(pthread_join(thread, NULL));
        guest_pause_us(5000);
    }
    ZERO(pthread_mutex_lock(&guard));
    is_over = 1;
    ZERO(pthread_mutex_unlock(&guard));
    for (int i = 0; i < ELDERS; i++)
        ZERO(pthread_join(threads[i], NULL));
    return guest_ok();
}
