// Shows: files that have no name: O_TMPFILE and linkat, mkstemp, tmpfile, unlinked open files; linked under a name when they are whole.
// Breaks if: a copy of such a file cannot be found again by its number, or a name is given twice.
#include "guest.h"

enum { ROUNDS = 40 };

int main(void)
{
    char link[64], text[64], pattern[PATH_MAX + 16];
    long sum = 0;

    guest_scratch();
    struct guest_name whole = guest_path("whole");
    for (int r = 0; r < ROUNDS; r++) {
        struct stat st;
        int fd = open(guest_scratch_dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        if (fd < 0) {
            CHECK(errno == EOPNOTSUPP);
            fd = open(whole.s, O_RDWR | O_CREAT | O_EXCL, 0600);
            CHECK(fd >= 0 && dprintf(fd, "round %d\n", r) > 0);
        } else {
            CHECK(dprintf(fd, "round %d\n", r) > 0 && fstat(fd, &st) == 0 && st.st_nlink == 0);
            snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
            CHECK(linkat(AT_FDCWD, link, AT_FDCWD, whole.s, AT_SYMLINK_FOLLOW) == 0);
            FAILS(linkat(AT_FDCWD, link, AT_FDCWD, whole.s, AT_SYMLINK_FOLLOW), EEXIST);
            CHECK(fstat(fd, &st) == 0 && st.st_nlink == 1);
        }
        CHECK(close(fd) == 0);
        FILE *in = fopen(whole.s, "re");
        int n = -1;
        CHECK(in && fscanf(in, "round %d\n", &n) == 1 && n == r && fclose(in) == 0 && unlink(whole.s) == 0);
        sum += n;

        snprintf(pattern, sizeof pattern, "%s/XXXXXX.tmp", guest_scratch_dir);
        fd = mkostemps(pattern, 4, O_CLOEXEC);
        CHECK(fd >= 0 && strcmp(pattern + strlen(pattern) - 4, ".tmp") == 0 && access(pattern, R_OK | W_OK) == 0);
        CHECK(unlink(pattern) == 0 && write(fd, "unlinked", 8) == 8 && lseek(fd, 2, SEEK_SET) == 2);
        CHECK(read(fd, text, sizeof text) == 6 && memcmp(text, "linked", 6) == 0);
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        int again = open(link, O_RDONLY | O_CLOEXEC);
        CHECK(again >= 0 && read(again, text, sizeof text) == 8 && close(again) == 0 && close(fd) == 0);

        FILE *anonymous = tmpfile();
        CHECK(anonymous && fprintf(anonymous, "%d %d", r, r + 1) > 0);
        rewind(anonymous);
        int a, b;
        CHECK(fscanf(anonymous, "%d %d", &a, &b) == 2 && a == r && b == r + 1 && fclose(anonymous) == 0);
        guest_pause_us(1000);
    }
    guest_scratch_end();
    printf("sum %ld\n", sum);
    return guest_ok();
}
