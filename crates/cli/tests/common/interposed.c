// A library that is preloaded in front of libc's functions (-DLIBRARY), and a program that says what it sees of it.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#ifdef LIBRARY

static int locks, threads, reads;

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    static int (*next)(pthread_mutex_t *);
    if (next == NULL)
        next = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_lock");
    __atomic_add_fetch(&locks, 1, __ATOMIC_RELAXED);
    return next(mutex);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
    int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) =
        (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))dlsym(RTLD_NEXT, "pthread_create");
    __atomic_add_fetch(&threads, 1, __ATOMIC_RELAXED);
    return next(thread, attributes, run, argument);
}

ssize_t read(int fd, void *buffer, size_t bytes)
{
    ssize_t (*next)(int, void *, size_t) = (ssize_t (*)(int, void *, size_t))dlsym(RTLD_NEXT, "read");
    __atomic_add_fetch(&reads, 1, __ATOMIC_RELAXED);
    return next(fd, buffer, bytes);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int (*next)(clockid_t, struct timespec *) = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = next(clock, now);
    now->tv_sec %= 1000;
    return result;
}

int strange_counts(int which)
{
    return which == 0 ? locks : which == 1 ? threads : reads;
}

#else

__attribute__((weak)) int strange_counts(int which);

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int sum;

static void *run(void *argument)
{
    for (int i = 0; i < 1000; i++) {
        pthread_mutex_lock(&mutex);
        sum++;
        pthread_mutex_unlock(&mutex);
    }
    return argument;
}

/* Three rounds with a line of input each: the counts of the library, and whether it is asked for the time. */
int main(void)
{
    char line[64];

    for (int round = 1; round <= 3; round++) {
        pthread_t thread[2];
        for (int i = 0; i < 2; i++)
            if (pthread_create(&thread[i], NULL, run, NULL) != 0)
                abort();
        for (int i = 0; i < 2; i++)
            pthread_join(thread[i], NULL);
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        if (strange_counts)
            printf("%d: %d %d %d ", round, strange_counts(0), strange_counts(1), strange_counts(2));
        printf("sum %d early %d\n", sum, now.tv_sec < 1000);
        fflush(stdout);
        if (read(0, line, sizeof line) < 0)
            abort();
    }
    return 0;
}

#endif
