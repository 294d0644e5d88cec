// Shows: threads list folders while others create and remove files in theirs; telldir, seekdir, rewinddir, scandir.
// Breaks if: the directory's order or content is asked again by the standby and differs from what the primary saw.
#include "guest.h"
#include <dirent.h>

enum { THREADS = 3, ROUNDS = 25, FILES = 20 };

static int not_dot(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static long list(const char *path)
{
    DIR *dir = opendir(path);
    long names = 0, position = -1;
    struct dirent *entry;
    char at[256] = "";

    CHECK(dir != NULL);
    while ((entry = readdir(dir)) != NULL) {
        if (position < 0 && names == FILES / 2) {
            position = telldir(dir);
            entry = readdir(dir);
            snprintf(at, sizeof at, "%s", entry ? entry->d_name : "");
            seekdir(dir, position);
            entry = readdir(dir);
            CHECK(entry != NULL && strcmp(at, entry->d_name) == 0);
        }
        names++;
    }
    rewinddir(dir);
    CHECK(readdir(dir) != NULL);
    CHECK(closedir(dir) == 0);
    return names;
}

static void *run(void *arg)
{
    char folder[16], file[PATH_MAX + 16];
    long names = 0;

    snprintf(folder, sizeof folder, "folder%ld", guest_num(arg));
    struct guest_name path = guest_path(folder);
    CHECK(mkdir(path.s, 0700) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        struct dirent **sorted;
        for (int i = 0; i < FILES; i++) {
            snprintf(file, sizeof file, "%s/%d", path.s, i);
            int fd = open(file, O_WRONLY | O_CREAT | O_EXCL, 0600);
            CHECK(fd >= 0 && close(fd) == 0);
        }
        names += list(path.s);
        int n = scandir(path.s, &sorted, not_dot, alphasort);
        CHECK(n == FILES && strcmp(sorted[0]->d_name, "0") == 0);
        while (n-- > 0)
            free(sorted[n]);
        free(sorted);
        for (int i = 0; i < FILES; i++) {
            snprintf(file, sizeof file, "%s/%d", path.s, i);
            CHECK(unlink(file) == 0);
        }
        guest_pause_us(300);
    }
    CHECK(rmdir(path.s) == 0);
    return guest_ptr(names);
}

int main(void)
{
    pthread_t t[THREADS];
    long names = 0;

    guest_scratch();
    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, guest_ptr(i));
    for (int i = 0; i < THREADS; i++)
        names += guest_num(guest_join(t[i]));
    guest_scratch_end();
    printf("names %ld\n", names);
    return guest_ok();
}
