/* threads COUNT SECTIONS [h]: so many threads share so many short critical sections: each under the thread's own lock, every
 * sixteenth under a common one as well. Prints the time and the processor time of the whole, with the making of the threads
 * and their end; with h the threads stand still in the middle, "held" is printed, and a line on standard input lets them go. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { COMMON_EVERY = 16, WORK = 600, STACK = 128 << 10 };

struct worker {
    pthread_t thread;
    pthread_mutex_t lock;
    uint64_t sum;
    long sections;
    char apart[64];
};

static pthread_mutex_t common = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t all, released;
static uint64_t total;
static int holds;

static double seconds(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void check(int error, const char *what)
{
    if (error) {
        fprintf(stderr, "%s: %s\n", what, strerror(error));
        exit(2);
    }
}

/* What a program does between its locks. */
static uint64_t compute(uint64_t value)
{
    for (int i = 0; i < WORK; i++)
        value = value * 6364136223846793005u + 1442695040888963407u;
    return value >> 60;
}

static void *work(void *of)
{
    struct worker *me = (struct worker *)of;

    if (holds) {
        pthread_barrier_wait(&all);
        pthread_barrier_wait(&released);
    }
    for (long i = 1; i <= me->sections; i++) {
        uint64_t value = compute((uint64_t)i);
        pthread_mutex_lock(&me->lock);
        me->sum += value;
        pthread_mutex_unlock(&me->lock);
        if (i % COMMON_EVERY == 0) {
            pthread_mutex_lock(&common);
            total += value;
            pthread_mutex_unlock(&common);
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    long count = argc > 2 ? atol(argv[1]) : 0, sections = argc > 2 ? atol(argv[2]) : 0;
    if (count < 1 || sections < count) {
        fprintf(stderr, "threads COUNT SECTIONS [h]\n");
        return 2;
    }
    holds = argc > 3;
    check(pthread_barrier_init(&all, NULL, (unsigned)count + 1), "pthread_barrier_init");
    check(pthread_barrier_init(&released, NULL, (unsigned)count + 1), "pthread_barrier_init");
    struct worker *workers = (struct worker *)calloc((size_t)count, sizeof *workers);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    check(workers == NULL ? 12 : pthread_attr_setstacksize(&attr, STACK), "pthread_attr_setstacksize");
    double began = seconds(CLOCK_MONOTONIC);
    for (long i = 0; i < count; i++) {
        pthread_mutex_init(&workers[i].lock, NULL);
        workers[i].sections = sections / count;
        check(pthread_create(&workers[i].thread, &attr, work, &workers[i]), "pthread_create");
    }
    if (holds) {
        pthread_barrier_wait(&all);
        printf("held\n");
        fflush(stdout);
        if (getchar() == EOF)
            return 2;
        pthread_barrier_wait(&released);
    }
    uint64_t sum = 0;
    for (long i = 0; i < count; i++) {
        check(pthread_join(workers[i].thread, NULL), "pthread_join");
        sum = sum * 31 + workers[i].sum;
    }
    printf("name=threads wall_s=%.4f cpu_s=%.4f hash=%016" PRIx64 "\n", seconds(CLOCK_MONOTONIC) - began,
           seconds(CLOCK_PROCESS_CPUTIME_ID), sum * 31 + total);
    return 0;
}
