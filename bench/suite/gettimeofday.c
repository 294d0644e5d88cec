/* gettimeofday: what older servers ask several times a request. */
#include "bench.h"

#include <sys/time.h>

static void batch(long ops)
{
    struct timeval time;
    uint64_t legal = 0;
    for (long i = 0; i < ops; i++) {
        gettimeofday(&time, NULL);
        legal += time.tv_usec < 1000000;
    }
    work(legal);
}

int main(int argc, char **argv)
{
    parse(argc, argv);
    become_multithreaded();
    measure("gettimeofday", 15000, NULL, batch); /* 240 KB of log */
    end_second_thread();
    return 0;
}
