// Shows: what a program reads about itself in /proc: its image, arguments, name, open files, limits, mappings, threads; and sysconf.
// Breaks if: the copies read about themselves each, and the answers go different ways.
#include "guest.h"
#include <dirent.h>
#include <sys/prctl.h>

enum { ROUNDS = 40 };

static long numbers_in(const char *folder, int above)
{
    DIR *dir = opendir(folder);
    long count = 0;

    CHECK(dir);
    for (struct dirent *entry; (entry = readdir(dir));)
        if (entry->d_name[0] != '.' && atoi(entry->d_name) > above && atoi(entry->d_name) != dirfd(dir))
            count++;
    CHECK(closedir(dir) == 0);
    return count;
}

static void *nothing(void *arg)
{
    char byte;

    guest_read_all((int)guest_num(arg), &byte, 1);
    return NULL;
}

int main(int argc, char **argv)
{
    char text[4096], link[64];
    int ends[2];

    guest_scratch();
    struct guest_name name = guest_path("open");
    CHECK(argc == 1 && pipe2(ends, O_CLOEXEC) == 0);
    long before = numbers_in("/proc/self/fd", 2);
    for (int r = 0; r < ROUNDS; r++) {
        int fd = open(name.s, O_RDWR | O_CREAT, 0600);
        CHECK(fd > 2 && numbers_in("/proc/self/fd", 2) == before + 1);
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, text, sizeof text);
        CHECK(length > 0 && (size_t)length == strlen(name.s) && memcmp(text, name.s, (size_t)length) == 0);
        CHECK(lseek(fd, 100 + r, SEEK_SET) == 100 + r);
        snprintf(link, sizeof link, "/proc/self/fdinfo/%d", fd);
        FILE *info = fopen(link, "re");
        long position = -1;
        CHECK(info && fscanf(info, "pos: %ld", &position) == 1 && position == 100 + r && fclose(info) == 0);
        CHECK(close(fd) == 0);

        FILE *arguments = fopen("/proc/self/cmdline", "re");
        CHECK(arguments && fread(text, 1, sizeof text, arguments) == strlen(argv[0]) + 1 && strcmp(text, argv[0]) == 0);
        CHECK(fclose(arguments) == 0 && readlink("/proc/self/exe", text, sizeof text) > 0);
        CHECK(prctl(PR_SET_NAME, r % 2 ? "odd" : "even") == 0 && prctl(PR_GET_NAME, text) == 0);
        CHECK(strcmp(text, r % 2 ? "odd" : "even") == 0);
        pthread_t t = guest_start(nothing, guest_ptr(ends[0]));
        FILE *status = fopen("/proc/self/status", "re");
        int has_threads = 0;
        CHECK(status);
        while (fgets(text, sizeof text, status))
            if (strncmp(text, "Threads:", 8) == 0)
                has_threads = atoi(text + 8) >= 2;
        CHECK(fclose(status) == 0 && has_threads && write(ends[1], "x", 1) == 1);
        guest_join(t);
        CHECK(sysconf(_SC_NPROCESSORS_ONLN) > 0 && sysconf(_SC_OPEN_MAX) > 3 && sysconf(_SC_PAGESIZE) == 4096);
        CHECK(sysconf(_SC_PHYS_PAGES) > 0 && pathconf("/", _PC_NAME_MAX) >= 255 && getpagesize() == 4096);
        guest_pause_us(1000);
    }
    CHECK(unlink(name.s) == 0);
    guest_scratch_end();
    return guest_ok();
}
