/* Two workers, one queue, and a crash: whether there is work is asked in one locked section, and the work taken in
   another. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct job {
    struct job *next;
    int number;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct job *queue;

static int has_work(void) {
    pthread_mutex_lock(&lock);
    int some = queue != NULL;
    pthread_mutex_unlock(&lock);
    return some;
}

static int take(void) {
    pthread_mutex_lock(&lock);
    struct job *job = queue;
    queue = job->next;
    pthread_mutex_unlock(&lock);
    int number = job->number;
    free(job);
    return number;
}

static void *worker(void *sum) {
    while (has_work()) *(int *)sum += take();
    return NULL;
}

int main(void) {
    pthread_t workers[2];
    int sums[2] = {0, 0};
    for (int i = 0; i < 20000; i++) {
        struct job *job = malloc(sizeof *job);
        *job = (struct job){queue, i};
        queue = job;
    }
    for (int i = 0; i < 2; i++) pthread_create(&workers[i], NULL, worker, &sums[i]);
    for (int i = 0; i < 2; i++) pthread_join(workers[i], NULL);
    printf("%d and %d\n", sums[0], sums[1]);
    return 0;
}
