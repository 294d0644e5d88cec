/* A server whose children have the connections. A request is a line, and its answer is how many have come over the connection so far.
 *
 * usage: forker PORT WAY
 *   each    a child for each connection, which the parent accepts and closes
 *   both    the same, and the parent keeps it open
 *   first   the same as `each`; the parent answers the first request
 *   before  two children, made before, accept at the listener that they inherit, and serve many connections each
 */
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MANY = 64, WORKERS = 2 };

/* Reads up to a line's end, and answers it; whether there was one. */
static int answer(int fd, long *count) {
    char byte, line[32];
    do {
        if (read(fd, &byte, 1) != 1)
            return 0;
    } while (byte != '\n');
    int length = snprintf(line, sizeof line, "%ld\n", ++*count);
    return write(fd, line, length) == length;
}

static void serve(int fd, long count) {
    while (answer(fd, &count))
        ;
    exit(0);
}

static void work(int listener) {
    struct pollfd all[MANY] = {{.fd = listener, .events = POLLIN}};
    long counts[MANY];
    int many = 1;
    while (poll(all, many, -1) > 0) {
        for (int at = many - 1; at > 0; at--) {
            if (all[at].revents && !answer(all[at].fd, &counts[at])) {
                close(all[at].fd);
                many--;
                all[at] = all[many];
                counts[at] = counts[many];
            }
        }
        if (all[0].revents && many < MANY) {
            /* Another one may have been faster. */
            int fd = accept4(listener, NULL, NULL, 0);
            if (fd >= 0) {
                all[many] = (struct pollfd){.fd = fd, .events = POLLIN};
                counts[many++] = 0;
            }
        }
    }
    exit(1);
}

int main(int argc, char **argv) {
    const char *way = argc > 2 ? argv[2] : "each";
    int is_before = !strcmp(way, "before"), on = 1;
    int listener = socket(AF_INET, SOCK_STREAM | (is_before ? SOCK_NONBLOCK : 0), 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(argc > 1 ? atoi(argv[1]) : 0)};
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 16))
        return 1;
    for (int worker = 0; is_before && worker < WORKERS; worker++) {
        if (fork() == 0)
            work(listener);
    }
    if (is_before) {
        int status = 0;
        printf("a worker has ended: %d, %d\n", wait(&status) > 0, status);
        return 2;
    }
    for (;;) {
        long count = 0;
        int fd = accept(listener, NULL, NULL);
        if (fd < 0 || (!strcmp(way, "first") && !answer(fd, &count)))
            continue;
        if (fork() == 0) {
            close(listener);
            serve(fd, count);
        }
        if (strcmp(way, "both"))
            close(fd);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
    }
}
