/* touched MIB [h]: a process with so much touched memory, in huge pages with h. Forks itself five times, prints the
 * microseconds of the quickest fork, and waits to be ended. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now_us(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

int main(int argc, char **argv)
{
    size_t bytes = argc > 1 ? (size_t)atol(argv[1]) << 20 : 0;
    double best = 1e12;

    if (bytes != 0) {
        char *memory = (char *)mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            return 1;
        madvise(memory, bytes, argc > 2 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
        memset(memory, 1, bytes);
    }
    for (int i = 0; i < 5; i++) {
        double start = now_us();
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        double took = now_us() - start;
        if (child < 0 || waitpid(child, NULL, 0) != child)
            return 1;
        best = took < best ? took : best;
    }
    printf("fork_us=%.0f\n", best);
    fflush(stdout);
    for (;;)
        usleep(20000);
}
