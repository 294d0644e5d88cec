/* forks COUNT: makes a child that ends at once and waits for it, so many times. Nanoseconds each: the median and the best. */
#include "net.h"
#include <sys/wait.h>

static int by_size(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

int main(int argc, char **argv)
{
    long count = argc > 1 ? atol(argv[1]) : 1000;
    uint64_t *took = calloc((size_t)count, sizeof *took);
    if (!took)
        die("calloc");
    for (long i = 0; i < count; i++) {
        uint64_t start = now_ns();
        pid_t child = fork();
        if (child < 0)
            die("fork");
        if (child == 0)
            _exit(0);
        int status;
        if (waitpid(child, &status, 0) != child || status != 0)
            die("waitpid");
        took[i] = now_ns() - start;
    }
    qsort(took, (size_t)count, sizeof *took, by_size);
    printf("%lu %lu\n", (unsigned long)took[count / 2], (unsigned long)took[0]);
    return 0;
}
