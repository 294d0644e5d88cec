/* A program to record: does what its argument says, mostly with what is different in each run. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static unsigned any(void) {
    unsigned value = 0;
    if (getrandom(&value, sizeof value, 0) != sizeof value) abort();
    return value;
}

/* Says whose turn it was: an order that no other run has. */
static void *take_turns(void *name) {
    for (int i = 0; i < 200; i++) {
        struct timespec time;
        clock_gettime(CLOCK_REALTIME, &time);
        pthread_mutex_lock(&lock);
        printf("%s %ld\n", (char *)name, time.tv_nsec);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

static int threads(void) {
    char *names[] = {"anna", "bert", "carl", "dora"};
    pthread_t made[4];
    for (int i = 0; i < 4; i++) pthread_create(&made[i], NULL, take_turns, names[i]);
    for (int i = 0; i < 4; i++) pthread_join(made[i], NULL);
    return 0;
}

/* So many pieces of what does not compress, a line for each: a recording of many chunks. */
static int lines(int count) {
    static unsigned char bytes[65536];
    int file = open("/dev/urandom", O_RDONLY);
    for (int i = 0; i < count; i++) {
        if (read(file, bytes, sizeof bytes) != sizeof bytes) return 95;
        unsigned sum = 0;
        for (size_t at = 0; at < sizeof bytes; at++) sum = sum * 31 + bytes[at];
        printf("%d %08x\n", i, sum);
        fflush(stdout);
    }
    return 0;
}

__attribute__((noinline)) static int crash(int *where) {
    return *where = 1; /* the crash */
}

/* What the child stores here is in no log. */
static int store_in_child(void) {
    static int *volatile place;
    static int value = 88;
    pid_t child = vfork();
    if (child == 0) {
        place = &value;
        _exit(0);
    }
    waitpid(child, NULL, 0);
    return *place == 88 ? 4 : 99;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    printf("%s %08x\n", what, any());
    fflush(stdout);
    if (strcmp(what, "threads") == 0) return threads();
    if (strcmp(what, "lines") == 0) return lines(atoi(argv[2]));
    if (strcmp(what, "exit") == 0) return fprintf(stderr, "error %08x\n", any()) < 0 ? 96 : atoi(argv[2]);
    if (strcmp(what, "die") == 0) return raise(atoi(argv[2]));
    if (strcmp(what, "crash") == 0) return crash(NULL);
    if (strcmp(what, "refused") == 0) return (int)syscall(SYS_ioperm, 0x80, 1, 1) > 0 || puts("behind it") < 0 ? 97 : 5;
    if (strcmp(what, "vfork") == 0) return store_in_child();
    if (strcmp(what, "self") == 0) return execl("/proc/self/exe", argv[0], "threads", (char *)NULL);
    if (strcmp(what, "sleep") == 0) return (int)sleep(60);
    return 98;
}
