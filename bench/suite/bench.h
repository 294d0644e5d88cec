/* What the micro benchmarks share: options, a second thread, batches, the report.
 *
 * A batch is timed as a whole and is followed by an untimed pause. The pause is not politeness: a ring holds
 * one MiB, a standby replays a bare lock more slowly than a primary takes it, and without the pause the figure
 * would be the standby's speed and not the price of an operation. `--pause-us 0` measures just that.
 *
 * The program is pinned by whoever starts it (`taskset`, or `understudy run --cpus`): pinned by itself, both
 * copies would sit on one core. Time comes from clock_gettime, which a standby answers from the log, so both
 * copies print the same line.
 */
#ifndef BENCH_H
#define BENCH_H

#include <inttypes.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct options {
    int batches;      /* timed batches */
    long ops;         /* operations in one, 0 = the program's own choice */
    long pause_us;    /* rest between two batches */
    long bytes;       /* for read and write */
    const char *path; /* for read and write */
};

static struct options options = {.batches = 60, .ops = 0, .pause_us = 3000, .bytes = 64, .path = NULL};
static uint64_t hash = 0xcbf29ce484222325u;

/* Adds a number to the hash of the work done: the same in every mode, and a reason not to optimise it away. */
static inline void work(uint64_t value)
{
    hash = (hash ^ value) * 0x100000001b3u;
}

static inline uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void die(const char *what)
{
    perror(what);
    exit(2);
}

static void parse(int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--batches"))
            options.batches = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--ops"))
            options.ops = atol(argv[i + 1]);
        else if (!strcmp(argv[i], "--pause-us"))
            options.pause_us = atol(argv[i + 1]);
        else if (!strcmp(argv[i], "--bytes"))
            options.bytes = atol(argv[i + 1]);
        else if (!strcmp(argv[i], "--path"))
            options.path = argv[i + 1];
        else {
            fprintf(stderr, "unknown option %s\n", argv[i]);
            exit(2);
        }
    }
    if (options.batches < 1 || options.bytes < 1) {
        fprintf(stderr, "--batches and --bytes must be positive\n");
        exit(2);
    }
}

static pthread_mutex_t rest_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t rest_over = PTHREAD_COND_INITIALIZER;
static int rest_done;
static pthread_t rest_thread;

static void *rest(void *unused)
{
    pthread_mutex_lock(&rest_lock);
    while (!rest_done)
        pthread_cond_wait(&rest_over, &rest_lock);
    pthread_mutex_unlock(&rest_lock);
    return unused;
}

/* A thread that sleeps: with it the C library (and the kernel, for descriptors) leave their shortcuts for
 * programs of one thread, which no server takes. */
static void become_multithreaded(void)
{
    if (pthread_create(&rest_thread, NULL, rest, NULL))
        die("pthread_create");
}

static void end_second_thread(void)
{
    pthread_mutex_lock(&rest_lock);
    rest_done = 1;
    pthread_cond_signal(&rest_over);
    pthread_mutex_unlock(&rest_lock);
    pthread_join(rest_thread, NULL);
}

static int by_value(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Runs `batch(ops)` as often as asked and prints one line. A tenth of a batch warms up before each. */
static void measure(const char *name, long ops, void (*before)(void), void (*batch)(long))
{
    if (options.ops > 0)
        ops = options.ops;
    double *ns = calloc((size_t)options.batches, sizeof *ns);
    if (!ns)
        die("calloc");
    long warm = ops / 10 + 1;
    for (int i = 0; i < options.batches; i++) {
        if (before)
            before();
        batch(warm);
        uint64_t start = now_ns();
        batch(ops);
        ns[i] = (double)(now_ns() - start) / (double)ops;
        if (options.pause_us > 0) {
            struct timespec pause = {options.pause_us / 1000000, options.pause_us % 1000000 * 1000};
            nanosleep(&pause, NULL);
        }
    }
    qsort(ns, (size_t)options.batches, sizeof *ns, by_value);
    printf("name=%s min_ns=%.3f median_ns=%.3f p90_ns=%.3f batches=%d ops=%ld hash=%016" PRIx64 "\n", name, ns[0],
           ns[options.batches / 2], ns[options.batches * 9 / 10], options.batches, ops, hash);
    free(ns);
}

#endif
