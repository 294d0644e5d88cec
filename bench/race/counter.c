/* Two threads, a counter, and no lock: a data race. What is counted depends on the order of loads and stores. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>

static volatile long counter;

static void *count(void *unused) {
    for (int i = 0; i < 20000000; i++) {
        long seen = counter;
        if (i % 20000 == 0) sched_yield();
        counter = seen + 1;
    }
    return unused;
}

int main(void) {
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, count, NULL);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    printf("counted %ld\n", counter);
    return 0;
}
