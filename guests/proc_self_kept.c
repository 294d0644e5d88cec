// Shows: files of /proc about the process itself that stay open: status, maps, task, fd, a duplicate; by name, by number, by thread.
// Breaks if: after a failover they are still about the dead process, at another position, or not found by the number that the program has.
// kit: no-checkpoint a list of memory that is read in pieces is of two processes where it goes on between them
#include "guest.h"
#include <dirent.h>
#include <sys/prctl.h>

enum { ROUNDS = 60 };

static char text[1 << 16];

/* All of an open file, from its beginning. */
static const char *whole(int fd)
{
    size_t used = 0;
    ssize_t n;

    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    while ((n = read(fd, text + used, sizeof text - 1 - used)) > 0)
        used += (size_t)n;
    CHECK(n == 0);
    text[used] = 0;
    return text;
}

static int opened(const char *form, long number)
{
    char path[64];

    snprintf(path, sizeof path, form, number);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    return fd;
}

static int has_mapping(int fd, const void *where)
{
    unsigned long from, to;

    for (const char *line = whole(fd); line && *line; line = strchr(line, '\n'), line += line != NULL)
        if (sscanf(line, "%lx-%lx", &from, &to) == 2 && from <= (unsigned long)where && (unsigned long)where < to)
            return 1;
    return 0;
}

static void *look(void *arg)
{
    char name[16], want[32];

    (void)arg;
    CHECK(prctl(PR_SET_NAME, "looker") == 0);
    int by_number = opened("/proc/self/task/%ld/comm", gettid());
    int by_thread = opened("/proc/thread-self/comm", 0);
    for (int r = 0; r < ROUNDS; r++) {
        snprintf(name, sizeof name, "looker %d", r);
        snprintf(want, sizeof want, "%s\n", name);
        CHECK(prctl(PR_SET_NAME, name) == 0);
        CHECK(strcmp(whole(by_number), want) == 0);
        CHECK(strcmp(whole(by_thread), want) == 0);
        guest_pause_us(700);
    }
    CHECK(close(by_number) == 0 && close(by_thread) == 0);
    return NULL;
}

int main(void)
{
    DIR *files = opendir("/proc/self/fd");
    int status = opened("/proc/self/status", 0), maps = opened("/proc/%ld/maps", getpid()), line = dup(status);
    char start[8];

    CHECK(files && line >= 0);
    look(NULL);
    /* The beginning of a line of the status, and the rest of it in other rounds, by the duplicate. */
    for (int r = 0; r < ROUNDS; r++) {
        CHECK(strstr(whole(status), "\nThreads:\t") != NULL);
        CHECK(lseek(status, 0, SEEK_SET) == 0 && read(status, start, 6) == 6 && memcmp(start, "Name:\t", 6) == 0);
        guest_pause_us(200);
        CHECK(lseek(line, 0, SEEK_CUR) == 6 && read(line, start, 6) == 6 && memcmp(start, "looker", 6) == 0);
        CHECK(has_mapping(maps, start) && has_mapping(maps, (const void *)main));
        int now = opened("/proc/%ld/stat", getpid());
        CHECK(strstr(whole(now), "(looker") != NULL && close(now) == 0);
        int seen = 0;
        rewinddir(files);
        for (struct dirent *entry; (entry = readdir(files));)
            seen += entry->d_name[0] != '.';
        CHECK(seen >= 7 && access("/proc/self/status", R_OK) == 0);
        guest_pause_us(300);
    }
    CHECK(closedir(files) == 0 && close(status) == 0 && close(maps) == 0 && close(line) == 0);
    return guest_ok();
}
