/* A server that counts its requests with a thread for each client: each answer is printed before it is sent. */
#include <stdio.h>

#include "serving.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long count;

static void *serve(void *arg) {
    int fd = (int)(long)arg;
    char line[64];
    while (read(fd, line, sizeof line) > 0) {
        pthread_mutex_lock(&lock);
        int length = snprintf(line, sizeof line, "%ld\n", ++count);
        if (write(1, line, length) != length)
            exit(2);
        pthread_mutex_unlock(&lock);
        if (write(fd, line, length) != length)
            break;
    }
    close(fd);
    return NULL;
}
