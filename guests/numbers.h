// Numbers of threads and processes: the kernel's next one is chosen, and threads keep theirs through the whole guest.
#ifndef NUMBERS_H
#define NUMBERS_H

#include "guest.h"
#include <sys/syscall.h>

/* The next thread or process that is made gets this number if it is free, and nobody else makes one meanwhile. False without the
 * right to say so. */
static inline int next_number_is(pid_t number)
{
    char text[16];
    int fd = open("/proc/sys/kernel/ns_last_pid", O_WRONLY | O_CLOEXEC);

    if (fd < 0)
        return 0;
    int length = snprintf(text, sizeof text, "%d", (int)number - 1);
    int done = write(fd, text, (size_t)length) == length;
    close(fd);
    return done;
}

enum { ELDERS_MAX = 8 };

static pthread_mutex_t elders_guard = PTHREAD_MUTEX_INITIALIZER;
static pthread_t elders_threads[ELDERS_MAX];
static pid_t elders[ELDERS_MAX];
static int elders_begun, elders_over;

/* By an elder: its number is known from here on. */
static inline void elder_begins(void)
{
    ZERO(pthread_mutex_lock(&elders_guard));
    elders[elders_begun++] = (pid_t)syscall(SYS_gettid);
    ZERO(pthread_mutex_unlock(&elders_guard));
}

/* By an elder: whether it is to go on. */
static inline int elder_goes_on(void)
{
    ZERO(pthread_mutex_lock(&elders_guard));
    int over = elders_over;
    ZERO(pthread_mutex_unlock(&elders_guard));
    return !over;
}

/* Makes them, and waits until all have begun. */
static inline void elders_start(void *(*fn)(void *), int count)
{
    for (int i = 0; i < count; i++)
        elders_threads[i] = guest_start(fn, NULL);
    for (int seen = 0; seen < count; guest_pause_us(100)) {
        ZERO(pthread_mutex_lock(&elders_guard));
        seen = elders_begun;
        ZERO(pthread_mutex_unlock(&elders_guard));
    }
}

/* Lets them end. */
static inline void elders_end(int count)
{
    ZERO(pthread_mutex_lock(&elders_guard));
    elders_over = 1;
    ZERO(pthread_mutex_unlock(&elders_guard));
    for (int i = 0; i < count; i++)
        guest_join(elders_threads[i]);
}

#endif
