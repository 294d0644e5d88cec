/* A server that counts its requests with a thread for each client: each answer is printed before it is sent. */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

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

int main(int argc, char **argv) {
    int on = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(argc > 1 ? atoi(argv[1]) : 0)};
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 16))
        return 1;
    for (;;) {
        pthread_t thread;
        int fd = accept(listener, NULL, NULL);
        if (fd < 0 || pthread_create(&thread, NULL, serve, (void *)(long)fd))
            return 1;
        pthread_detach(thread);
    }
}
