// Shows: parent and three children append lines of many lengths to one file; every line is there once, whole, in its writer's order.
// Breaks if: an append in doubt is made again although it was done, or never, because other processes have moved the end of the file.
// kit: tree
#include "guest.h"
#include <sys/wait.h>

enum { WRITERS = 4, LINES = 250 };

static void append(int fd, long writer)
{
    for (long n = 0; n < LINES; n++) {
        char line[256];
        int length = snprintf(line, sizeof line, "%ld %ld ", writer, n);
        int more = (int)(guest_mix((uint64_t)(writer * LINES + n)) % 200);
        memset(line + length, 'a' + (int)writer, (size_t)more);
        line[length + more] = '\n';
        CHECK(write(fd, line, (size_t)(length + more + 1)) == length + more + 1);
        guest_pause_us(1300);
    }
}

int main(void)
{
    long next[WRITERS] = { 0 }, lines = 0;
    char line[256];
    int status;

    guest_scratch();
    struct guest_name name = guest_path("log");
    int fd = open(name.s, O_WRONLY | O_CREAT | O_APPEND, 0600);
    CHECK(fd >= 0);
    for (long w = 1; w < WRITERS; w++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            /* One of them has an open file of its own. */
            append(w == 1 ? open(name.s, O_WRONLY | O_APPEND) : fd, w);
            _exit(0);
        }
    }
    append(fd, 0);
    for (int w = 1; w < WRITERS; w++)
        CHECK(waitpid(-1, &status, 0) > 0 && status == 0);
    CHECK(close(fd) == 0);
    FILE *log = fopen(name.s, "r");
    CHECK(log);
    while (fgets(line, sizeof line, log)) {
        long writer, n;
        CHECK(sscanf(line, "%ld %ld ", &writer, &n) == 2 && writer >= 0 && writer < WRITERS);
        CHECK(n == next[writer]++);
        size_t more = guest_mix((uint64_t)(writer * LINES + n)) % 200;
        char *text = strchr(strchr(line, ' ') + 1, ' ') + 1;
        CHECK(strlen(text) == more + 1 && text[more] == '\n');
        for (size_t i = 0; i < more; i++)
            CHECK(text[i] == 'a' + (int)writer);
        lines++;
    }
    CHECK(fclose(log) == 0 && unlink(name.s) == 0);
    guest_scratch_end();
    printf("lines %ld\n", lines);
    CHECK(lines == (long)WRITERS * LINES);
    return guest_ok();
}
