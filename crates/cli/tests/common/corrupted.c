/* Two threads work for a third of a second. Late one of them writes behind an array, into a sum; what is wrong with it is
   found at the end. With an argument the program ends there as if nothing were. */
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

enum { ROUNDS = 300, BAD = 250 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct { int cells[8]; long sum; } kept;

static void put(int *cells, int at, int value) {
    cells[at] = value; /* corrupts */
}

static void *work(void *unused) {
    for (int round = 0; round < ROUNDS; round++) {
        pthread_mutex_lock(&lock);
        put(kept.cells, round == BAD ? 8 : round % 8, 5);
        pthread_mutex_unlock(&lock);
        usleep(1000);
    }
    return unused;
}

int main(int argc, char **argv) {
    pthread_t other;
    (void)argv;
    pthread_create(&other, 0, work, 0);
    for (int round = 0; round < ROUNDS; round++) {
        pthread_mutex_lock(&lock);
        if (round % 100 == 0) kept.sum += 1000;
        if (round % 10 == 0) {
            printf("round %d\n", round);
            fflush(stdout);
        }
        pthread_mutex_unlock(&lock);
        usleep(1000);
    }
    pthread_join(other, 0);
    if (argc == 1) assert(kept.sum == 3000);
    puts("done");
    return 0;
}
