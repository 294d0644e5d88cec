/* A large transfer whose every byte is known and none is stored: `stream serve PORT BYTES` is a small server of one file over
 * http, a thread for each connection; `stream check BYTES MS` reads the file from standard input and says what came when. The
 * file is the numbers 0, 1, 2, ... in eight bytes each, so that what is lost, repeated or exchanged shows. */
#define _GNU_SOURCE
#include "net.h"
#include <inttypes.h>
#include <pthread.h>

enum { BLOCK = 64 << 10, WORDS = BLOCK / 8, ROOM = 4096, LINES = 100000 };

static uint64_t bytes;

static void fill(uint64_t *words, uint64_t first)
{
    for (uint64_t i = 0; i < WORDS; i++)
        words[i] = first + i;
}

static void *answer(void *of)
{
    int fd = (int)(intptr_t)of;
    char request[ROOM], header[256];
    size_t have = 0;
    uint64_t *words = (uint64_t *)malloc(BLOCK);

    request[0] = 0;
    while (!strstr(request, "\r\n\r\n")) {
        ssize_t got = recv(fd, request + have, ROOM - 1 - have, 0);
        if (got <= 0 || !words)
            goto end;
        request[have += (size_t)got] = 0;
    }
    int len = snprintf(header, sizeof header, "HTTP/1.1 200 OK\r\nContent-Length: %" PRIu64 "\r\nConnection: close\r\n\r\n", bytes);
    send_all(fd, header, (size_t)len);
    for (uint64_t at = 0; at < bytes; at += BLOCK) {
        fill(words, at / 8);
        send_all(fd, (char *)words, bytes - at < BLOCK ? bytes - at : BLOCK);
    }
end:
    free(words);
    close(fd);
    return NULL;
}

static _Noreturn void serve(int port)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;

    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&here, sizeof here) || listen(listener, 16))
        die("listen");
    for (;;) {
        pthread_t thread;
        int fd = accept(listener, NULL, NULL);
        if (fd < 0)
            continue;
        if (pthread_create(&thread, NULL, answer, (void *)(intptr_t)fd))
            die("pthread_create");
        pthread_detach(thread);
    }
}

/* Bytes by slices of time, the longest silence, and how many words were not the expected ones. */
static int check(uint64_t slice_ns)
{
    static uint64_t slices[LINES], words[WORDS];
    uint64_t seen = 0, wrong = 0, longest = 0, start = 0, last = 0, now = 0;
    size_t part = 0;

    for (;;) {
        ssize_t got = read(0, (char *)words + part, BLOCK - part);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        now = now_ns();
        if (!start)
            start = last = now;
        if (now - last > longest)
            longest = now - last;
        last = now;
        uint64_t slice = (now - start) / slice_ns;
        slices[slice < LINES ? slice : LINES - 1] += (uint64_t)got;
        size_t have = part + (size_t)got;
        for (size_t i = 0; i < have / 8; i++)
            wrong += words[i] != seen / 8 + i;
        seen += have & ~(size_t)7;
        part = have & 7;
        memmove(words, (char *)words + (have & ~(size_t)7), part);
    }
    seen += part;
    printf("bytes=%" PRIu64 " wrong=%" PRIu64 " longest_us=%.1f seconds=%.4f\n", seen, wrong + (seen != bytes), (double)longest / 1e3,
           (double)(now - start) / 1e9);
    for (uint64_t i = 0; i < LINES && start && i <= (now - start) / slice_ns; i++)
        printf("%" PRIu64 "\n", slices[i]);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 4 && !strcmp(argv[1], "serve")) {
        bytes = strtoull(argv[3], NULL, 10);
        serve(atoi(argv[2]));
    }
    if (argc == 4 && !strcmp(argv[1], "check")) {
        bytes = strtoull(argv[2], NULL, 10);
        return check(strtoull(argv[3], NULL, 10) * 1000000u);
    }
    fprintf(stderr, "stream serve PORT BYTES, or stream check BYTES MS\n");
    return 2;
}
