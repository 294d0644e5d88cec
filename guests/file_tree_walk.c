// Shows: nftw with directories entered and left, glob, scandir and a recursive removal, over a tree that grows and shrinks.
// Breaks if: the directory that the program stands in differs between the copies, or a listing is read by one copy only.
#include "guest.h"
#include <dirent.h>
#include <ftw.h>
#include <glob.h>

enum { ROUNDS = 16 };

static long files, folders, bytes;

static int visit(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    CHECK(kind == FTW_F || kind == FTW_DP);
    if (kind == FTW_F) {
        CHECK(access(path + at->base, F_OK) == 0);
        files++;
        bytes += st->st_size;
    } else {
        folders++;
    }
    return 0;
}

static int take_away(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    if (at->level > 0)
        CHECK((kind == FTW_DP ? rmdir(path) : unlink(path)) == 0);
    return 0;
}

static int only_even(const struct dirent *entry)
{
    return entry->d_name[0] == 'f' && (entry->d_name[1] - '0') % 2 == 0;
}

int main(void)
{
    char before[PATH_MAX], after[PATH_MAX], name[64];

    guest_scratch();
    CHECK(getcwd(before, sizeof before));
    for (int r = 0; r < ROUNDS; r++) {
        glob_t found;
        struct dirent **list;
        int here = open(guest_scratch_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), wanted = 0;
        CHECK(here >= 0);
        for (int d = 0; d <= r % 4; d++) {
            snprintf(name, sizeof name, "d%d", d);
            CHECK(mkdirat(here, name, 0700) == 0);
            for (int f = 0; f < 6; f++) {
                snprintf(name, sizeof name, "d%d/f%d", d, f);
                int fd = openat(here, name, O_CREAT | O_EXCL | O_WRONLY, 0600);
                CHECK(fd >= 0 && write(fd, name, (size_t)f) == f && close(fd) == 0);
                wanted += f;
            }
        }
        files = folders = bytes = 0;
        CHECK(nftw(guest_scratch_dir, visit, 8, FTW_CHDIR | FTW_DEPTH | FTW_PHYS) == 0);
        CHECK(files == 6 * (r % 4 + 1) && folders == r % 4 + 2 && bytes == wanted);
        CHECK(getcwd(after, sizeof after) && strcmp(before, after) == 0);
        CHECK(glob(guest_path("d*/f[1-3]").s, 0, NULL, &found) == 0 && found.gl_pathc == 3u * (unsigned)(r % 4 + 1));
        CHECK(strcmp(found.gl_pathv[0], guest_path("d0/f1").s) == 0);
        globfree(&found);
        CHECK(scandir(guest_path("d0").s, &list, only_even, alphasort) == 3 && strcmp(list[2]->d_name, "f4") == 0);
        for (int i = 0; i < 3; i++)
            free(list[i]);
        free(list);
        CHECK(nftw(guest_scratch_dir, take_away, 8, FTW_DEPTH | FTW_PHYS) == 0);
        CHECK(close(here) == 0);
        guest_pause_us(1500);
    }
    guest_scratch_end();
    printf("files %ld bytes %ld\n", files, bytes);
    return guest_ok();
}
