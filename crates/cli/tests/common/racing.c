// Differs between its copies: what it does is decided by the processor's clock, which no log carries. Then it waits for its
// standard input to end.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
#include <x86intrin.h>

__attribute__((noinline)) int decides(void)
{
    int made = 0;

    /* A count that two copies share by luck once in sixteen times. */
    for (unsigned n = 1 + (__rdtsc() >> 8) % 16; n > 0; n--)
        made += getppid() > 0;
    usleep(1000);
    return made;
}

static void *racer(void *arg)
{
    pthread_setname_np(pthread_self(), "racer");
    for (int i = 0; i < 200; i++)
        decides();
    return arg;
}

int main(void)
{
    pthread_t thread;

    usleep(50 * 1000);
    pthread_create(&thread, NULL, racer, NULL);
    pthread_join(thread, NULL);
    puts("ready");
    fflush(stdout);
    return getchar() != EOF;
}
