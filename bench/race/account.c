/* Two tellers, one account, a lock that is always held, and an update that is lost about once in two hundred runs: the
   balance is read in one locked section and written in another. */
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define TELLERS 2
#define DEPOSIT 100
#define DAY 1000000 /* nanoseconds */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int balance;

static long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000 + time.tv_nsec;
}

static int read_balance(void) {
    pthread_mutex_lock(&lock);
    int seen = balance;
    pthread_mutex_unlock(&lock);
    return seen;
}

static void write_balance(int seen, int amount) {
    pthread_mutex_lock(&lock);
    balance = seen + amount;
    pthread_mutex_unlock(&lock);
}

/* Takes some microseconds, without the lock: what follows overwrites what others write meanwhile. */
static void count_notes(void) {
    for (volatile int note = 0; note < 4000; note++) {}
}

/* A customer comes at a moment of his own. */
static void *teller(void *comes) {
    struct timespec moment = {*(long *)comes / 1000000000, *(long *)comes % 1000000000};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &moment, NULL);
    int seen = read_balance();
    count_notes();
    write_balance(seen, DEPOSIT);
    return NULL;
}

int main(void) {
    pthread_t tellers[TELLERS];
    long moments[TELLERS];
    long opens = now() + 2000000;
    srandom((unsigned)opens);
    for (int i = 0; i < TELLERS; i++) {
        moments[i] = opens + random() % DAY;
        pthread_create(&tellers[i], NULL, teller, &moments[i]);
    }
    for (int i = 0; i < TELLERS; i++) pthread_join(tellers[i], NULL);
    printf("balance %d\n", balance);
    fflush(stdout);
    assert(balance == TELLERS * DEPOSIT);
    return 0;
}
