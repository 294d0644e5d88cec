/* A program for a sanitizer's runtime: a thread, a lock, memory. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long sum;

static void *run(void *unused)
{
    (void)unused;
    for (int i = 0; i < 1000; i++) {
        pthread_mutex_lock(&lock);
        sum++;
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

int main(void)
{
    pthread_t thread[2];
    long *copy = malloc(sizeof *copy);

    for (int i = 0; i < 2; i++)
        pthread_create(&thread[i], NULL, run, NULL);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    *copy = sum;
    printf("%ld %d\n", *copy, getenv("LD_PRELOAD") != NULL);
    free(copy);
    return 3;
}
