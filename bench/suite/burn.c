/* burn THREADS: computes in so many threads until it is ended by SIGTERM, and prints how many rounds it did a second. */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { THREADS_MAX = 64, ROUND = 100000 };

static volatile sig_atomic_t ended;
static uint64_t rounds[THREADS_MAX], results[THREADS_MAX];

static void end(int signal)
{
    (void)signal;
    ended = 1;
}

static void *burn(void *of)
{
    uint64_t *mine = (uint64_t *)of, value = 1, done = 0;
    while (!ended) {
        for (int i = 0; i < ROUND; i++)
            value = value * 6364136223846793005u + 1442695040888963407u;
        done++;
    }
    *mine = done;
    results[mine - rounds] = value;
    return NULL;
}

int main(int argc, char **argv)
{
    int count = argc == 2 ? atoi(argv[1]) : 0;
    pthread_t threads[THREADS_MAX];
    struct timespec start, stop;
    uint64_t total = 0;

    if (count < 1 || count > THREADS_MAX)
        return 2;
    signal(SIGTERM, end);
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, burn, &rounds[i]))
            return 2;
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        total += rounds[i];
    }
    clock_gettime(CLOCK_MONOTONIC, &stop);
    double seconds = (double)(stop.tv_sec - start.tv_sec) + (double)(stop.tv_nsec - start.tv_nsec) / 1e9;
    printf("rounds_per_s=%.2f\n", (double)total / seconds);
    return 0;
}
