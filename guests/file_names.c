// Shows: rename, link, symlink, readlink, unlink, mkdir, rmdir, stat, lstat, access, chmod, utimensat, *at calls.
// Breaks if: a name is changed twice: the second rename or unlink then fails with ENOENT, or takes another file.
#include "guest.h"

enum { ROUNDS = 60 };

int main(void)
{
    long links = 0;

    guest_scratch();
    struct guest_name a = guest_path("a"), b = guest_path("b"), s = guest_path("s"), d = guest_path("d");
    int dir = open(guest_scratch_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(dir >= 0);
    for (int r = 0; r < ROUNDS; r++) {
        struct stat st, other;
        char target[16];
        int fd = open(a.s, O_WRONLY | O_CREAT | O_EXCL, 0644);
        CHECK(fd >= 0);
        guest_write_all(fd, "hello", 5);
        CHECK(close(fd) == 0);
        CHECK(rename(a.s, b.s) == 0 && stat(b.s, &st) == 0 && st.st_size == 5);
        FAILS(stat(a.s, &other), ENOENT);
        CHECK(link(b.s, a.s) == 0 && stat(a.s, &other) == 0);
        CHECK(other.st_ino == st.st_ino && other.st_nlink == 2);
        links += (long)other.st_nlink;
        CHECK(symlink("b", s.s) == 0 && readlink(s.s, target, sizeof target) == 1 && target[0] == 'b');
        CHECK(lstat(s.s, &other) == 0 && S_ISLNK(other.st_mode));
        CHECK(stat(s.s, &other) == 0 && other.st_ino == st.st_ino);
        CHECK(chmod(b.s, 0400) == 0 && stat(b.s, &other) == 0 && (other.st_mode & 0777) == 0400);
        CHECK(access(b.s, R_OK) == 0);
        const struct timespec times[2] = { { 1000000000, 5 }, { 1100000000, 7 } };
        CHECK(utimensat(dir, "b", times, 0) == 0 && stat(b.s, &other) == 0);
        CHECK(other.st_mtim.tv_sec == 1100000000 && other.st_mtim.tv_nsec == 7);
        CHECK(mkdir(d.s, 0700) == 0);
        FAILS(mkdir(d.s, 0700), EEXIST);
        CHECK(renameat(dir, "a", dir, "d/a") == 0);
        FAILS(rmdir(d.s), ENOTEMPTY);
        CHECK(unlinkat(dir, "d/a", 0) == 0 && unlinkat(dir, "d", AT_REMOVEDIR) == 0);
        CHECK(unlink(s.s) == 0 && unlink(b.s) == 0);
        FAILS(unlink(b.s), ENOENT);
        guest_pause_us(300);
    }
    CHECK(close(dir) == 0);
    guest_scratch_end();
    printf("links %ld\n", links);
    return guest_ok();
}
