/* A server that moves bytes, with a thread for each client. A request is a line: GET bytes, PUT bytes (and the bytes), ALL bytes (and
 * those, up to the end of what the client sends), LAST bytes (and the connection is closed). Bytes are 64-bit numbers that count. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "serving.h"

enum { PART = 64 << 10 };

static void make(char *part, long at, long bytes) {
    for (long place = at; place < at + bytes; place++)
        part[place - at] = (char)((uint64_t)(place / 8) >> place % 8 * 8);
}

static void give(int fd, long bytes, char *part) {
    for (long at = 0; at < bytes;) {
        long next = bytes - at < PART ? bytes - at : PART;
        make(part, at, next);
        for (long done = 0; done < next;) {
            long now = write(fd, part + done, next - done);
            if (now <= 0)
                return;
            done += now;
        }
        at += next;
    }
}

/* How many bytes were as they should be, up to the end or so many. */
static long take(int fd, long bytes, char *part, char *like) {
    long at = 0;
    while (at < bytes) {
        long now = read(fd, part, bytes - at < PART ? bytes - at : PART);
        if (now <= 0)
            break;
        make(like, at, now);
        if (memcmp(part, like, now))
            break;
        at += now;
    }
    return at;
}

static void *serve(void *arg) {
    int fd = (int)(long)arg;
    char *part = malloc(PART), *like = malloc(PART), line[64], what[8];
    for (;;) {
        size_t length = 0;
        while (length < sizeof line - 1 && read(fd, line + length, 1) == 1 && line[length++] != '\n')
            ;
        line[length] = 0;
        long bytes;
        if (sscanf(line, "%7s %ld", what, &bytes) != 2)
            break;
        if (!strcmp(what, "GET") || !strcmp(what, "LAST")) {
            give(fd, bytes, part);
        } else {
            long came = take(fd, bytes, part, like);
            if (!strcmp(what, "ALL") && read(fd, part, 1) != 0)
                came = -1;
            int said = snprintf(line, sizeof line, "%ld\n", came);
            if (write(fd, line, said) != said)
                break;
        }
        if (!strcmp(what, "LAST") || !strcmp(what, "ALL"))
            break;
    }
    close(fd);
    free(part);
    free(like);
    return NULL;
}
