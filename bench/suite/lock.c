/* An uncontended pthread_mutex_lock and unlock in a process of two threads: one "operation" is the pair. */
#include "bench.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t counter;

static void batch(long ops)
{
    for (long i = 0; i < ops; i++) {
        pthread_mutex_lock(&mutex);
        counter += (uint64_t)i;
        pthread_mutex_unlock(&mutex);
    }
    work(counter);
}

int main(int argc, char **argv)
{
    parse(argc, argv);
    become_multithreaded();
    measure("lock", 20000, NULL, batch); /* 320 KB of log */
    end_second_thread();
    return 0;
}
