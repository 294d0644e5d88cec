/* A ledger in files, as a database keeps one: each step writes a record in place, appends to a log, and keeps a journal while it does
 * so; some steps begin a new log, and write by a mapping. After each step all of them must be what the memory says: if not, it ends
 * with 1. Each line of its output is the number of its steps. It ends with its input.
 *
 * usage: ledgered FOLDER [mapped] */
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define RECORDS 1024

static uint64_t records[RECORDS], step, logged, log_number;
static char folder[512];

static int wrong(const char *what)
{
    printf("step %llu: %s is not what it was\n", (unsigned long long)step, what);
    return 1;
}

static char *path(const char *name, uint64_t number)
{
    static char whole[600];

    snprintf(whole, sizeof whole, "%s/%s.%llu", folder, name, (unsigned long long)number);
    return whole;
}

static int begin_log(int log)
{
    if (log >= 0) {
        close(log);
        unlink(path("log", log_number));
    }
    logged = 0;
    return open(path("log", ++log_number), O_RDWR | O_CREAT | O_EXCL | O_APPEND, 0600);
}

int main(int argc, char **argv)
{
    struct pollfd end = { .fd = 0, .events = POLLIN };
    volatile uint64_t *mapped = NULL;
    struct stat status;
    int data, log = -1;

    if (argc < 2)
        return 2;
    snprintf(folder, sizeof folder, "%s", argv[1]);
    data = open(path("data", 0), O_RDWR | O_CREAT | O_EXCL, 0600);
    log = begin_log(log);
    if (data < 0 || log < 0 || ftruncate(data, sizeof records) || fstat(data, &status))
        return 2;
    ino_t number = status.st_ino;
    if (argc > 2) {
        int file = open(path("mapped", 0), O_RDWR | O_CREAT | O_EXCL, 0600);

        if (file < 0 || ftruncate(file, 4096))
            return 2;
        mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        close(file);
        if (mapped == MAP_FAILED)
            return 2;
    }
    while (poll(&end, 1, 1) == 0) {
        uint64_t at = step * 7919 % RECORDS, there[RECORDS], last;
        char *name = path("journal", 0);
        int journal = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);

        /* A journal that is there tells of a step that nobody has made. */
        if (journal < 0)
            return wrong("the journal");
        if (write(journal, &at, sizeof at) != sizeof at)
            return 2;
        records[at] = ++step;
        if (pwrite(data, &step, sizeof step, at * sizeof step) != sizeof step)
            return 2;
        if (write(log, &step, sizeof step) != sizeof step)
            return 2;
        logged++;
        if (mapped)
            mapped[step % 512] = step;
        if (fstat(journal, &status) || status.st_nlink != 1 || unlink(name))
            return wrong("the journal's name");
        close(journal);
        if (step % 300 == 0)
            log = begin_log(log);
        if (log < 0)
            return wrong("the new log");
        if (pread(data, there, sizeof there, 0) != sizeof there || memcmp(there, records, sizeof there))
            return wrong("the data");
        /* The file behind its name is the one that is open. */
        if (stat(path("data", 0), &status) || status.st_ino != number)
            return wrong("the file of the data");
        if (stat(path("log", log_number), &status) || (uint64_t)status.st_size != logged * sizeof last)
            return wrong("the length of the log");
        if (logged && (pread(log, &last, sizeof last, (logged - 1) * sizeof last) != sizeof last || last != step))
            return wrong("the end of the log");
        if (access(path("log", log_number + 1), F_OK) == 0)
            return wrong("the next log");
        for (uint64_t back = 0; mapped && back < 512 && back < step; back++)
            if (mapped[(step - back) % 512] != step - back)
                return wrong("what is mapped");
        if (step % 50 == 0) {
            printf("%llu\n%s", (unsigned long long)step, step == 50 ? "ready\n" : "");
            fflush(stdout);
        }
    }
    return 0;
}
