/* A server with a thread for each connection, which sends back what it is sent. It says its port first. */
#include <netinet/in.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long answered;

static void *serve(void *argument)
{
    int fd = (int)(intptr_t)argument;
    char bytes[4096];
    ssize_t n;

    while ((n = read(fd, bytes, sizeof bytes)) > 0) {
        pthread_mutex_lock(&lock);
        answered++;
        pthread_mutex_unlock(&lock);
        if (write(fd, bytes, (size_t)n) != n)
            break;
    }
    close(fd);
    return NULL;
}

int main(void)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);

    if (bind(listener, (struct sockaddr *)&address, length) || listen(listener, 16) ||
        getsockname(listener, (struct sockaddr *)&address, &length))
        return 1;
    printf("%d\nready\n", ntohs(address.sin_port));
    fflush(stdout);
    for (;;) {
        pthread_t thread;
        int fd = accept(listener, NULL, NULL);

        if (fd < 0 || pthread_create(&thread, NULL, serve, (void *)(intptr_t)fd))
            return 1;
        pthread_detach(thread);
    }
}
