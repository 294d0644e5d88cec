/* A system call made inside the C library, by way of its patched site: getppid has no export of ours, does
 * next to nothing in the kernel and logs no bytes. */
#include "bench.h"

#include <unistd.h>

static pid_t first;

static void batch(long ops)
{
    uint64_t others = 0;
    for (long i = 0; i < ops; i++)
        others += getppid() != first;
    work(others);
    work((uint64_t)ops);
}

int main(int argc, char **argv)
{
    parse(argc, argv);
    become_multithreaded();
    first = getppid();
    measure("getppid", 4000, NULL, batch); /* 256 KB of log */
    end_second_thread();
    return 0;
}
