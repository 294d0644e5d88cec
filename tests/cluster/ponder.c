/* A server that counts its requests, and computes half of the time: a copy that runs all of it from the beginning takes long.
   With a second argument it has had a child. A request that begins with r is a race: what it does follows from where the other thread is. */
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "serving.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long count;
static uint64_t table[1 << 16], sum = 1;
static volatile long steps;

static void *ponder(void *arg) {
    for (;;) {
        for (int step = 0; step < 200000; step++) {
            steps++;
            sum = sum * 6364136223846793005u + 1442695040888963407u;
            table[sum >> 48] ^= sum;
        }
        pthread_mutex_lock(&lock);
        sum += count;
        pthread_mutex_unlock(&lock);
        usleep(1000);
    }
    return arg;
}

__attribute__((constructor)) static void begin(int argc, char **argv) {
    pthread_t thread;
    (void)argv;
    if (argc > 2) {
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        waitpid(child, NULL, 0);
    }
    pthread_create(&thread, NULL, ponder, NULL);
}

static void *serve(void *arg) {
    int fd = (int)(long)arg;
    char line[64];
    while (read(fd, line, sizeof line) > 0) {
        if (line[0] == 'r') {
            if (steps & 1)
                getppid();
            if (write(fd, "0\n", 2) != 2)
                break;
            continue;
        }
        pthread_mutex_lock(&lock);
        int length = snprintf(line, sizeof line, "%ld\n", ++count);
        sum ^= count;
        pthread_mutex_unlock(&lock);
        if (write(fd, line, length) != length)
            break;
    }
    close(fd);
    return NULL;
}
