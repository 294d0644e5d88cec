/* clock_gettime(CLOCK_MONOTONIC), which natively never enters the kernel. */
#include "bench.h"

static uint64_t last, backwards;

static void batch(long ops)
{
    struct timespec time;
    for (long i = 0; i < ops; i++) {
        clock_gettime(CLOCK_MONOTONIC, &time);
        uint64_t now = (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
        backwards += now < last;
        last = now;
    }
    work(backwards);
    work((uint64_t)ops);
}

int main(int argc, char **argv)
{
    parse(argc, argv);
    become_multithreaded();
    measure("clock", 15000, NULL, batch); /* 240 KB of log */
    end_second_thread();
    return 0;
}
