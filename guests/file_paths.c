// Shows: openat2 with its limits, O_PATH, AT_EMPTY_PATH, loops of links, dangling ones, O_NOFOLLOW, realpath, long names: each with its own error.
// Breaks if: an error that the first attempt caused is told of the second, or a descriptor of O_PATH is taken for one that can be read.
#include "guest.h"
#include <linux/openat2.h>
#include <sys/syscall.h>

enum { ROUNDS = 40 };

static int open2(int dir, const char *path, uint64_t flags, uint64_t resolve)
{
    struct open_how how = { .flags = flags, .resolve = resolve };

    return (int)syscall(SYS_openat2, dir, path, &how, sizeof how);
}

int main(void)
{
    char text[PATH_MAX], longest[300];
    struct stat st;
    struct statx sx;

    guest_scratch();
    int dir = open(guest_scratch_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(dir >= 0);
    memset(longest, 'n', sizeof longest);
    longest[256] = 0;
    for (int r = 0; r < ROUNDS; r++) {
        CHECK(mkdirat(dir, "sub", 0700) == 0);
        int fd = openat(dir, "sub/file", O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0640);
        CHECK(fd >= 0 && write(fd, "content", 7) == 7 && close(fd) == 0);
        CHECK(symlinkat("../sub", dir, "sub/up") == 0 && symlinkat("loop", dir, "loop") == 0);
        CHECK(symlinkat("nowhere", dir, "dangling") == 0 && symlinkat("/etc/passwd", dir, "out") == 0);

        fd = open2(dir, "sub/file", O_RDONLY | O_CLOEXEC, RESOLVE_BENEATH);
        CHECK(fd >= 0 && read(fd, text, sizeof text) == 7 && close(fd) == 0);
        FAILS(open2(dir, "out", O_RDONLY, RESOLVE_BENEATH), EXDEV);
        FAILS(open2(dir, "../x", O_RDONLY, RESOLVE_BENEATH), EXDEV);
        FAILS(open2(dir, "sub/up/file", O_RDONLY, RESOLVE_NO_SYMLINKS), ELOOP);
        FAILS(open2(dir, "sub/file", O_RDONLY | (1ull << 40), 0), EINVAL);
        FAILS(openat(dir, "loop", O_RDONLY), ELOOP);
        FAILS(openat(dir, "dangling", O_RDONLY), ENOENT);
        FAILS(openat(dir, "dangling", O_RDONLY | O_NOFOLLOW), ELOOP);
        FAILS(openat(dir, "sub/file/x", O_RDONLY), ENOTDIR);
        FAILS(openat(dir, "sub", O_WRONLY), EISDIR);
        FAILS(openat(dir, longest, O_RDONLY), ENAMETOOLONG);
        FAILS(openat(dir, "", O_RDONLY), ENOENT);
        fd = openat(dir, "dangling", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        CHECK(fd >= 0 && close(fd) == 0 && unlinkat(dir, "nowhere", 0) == 0);

        fd = openat(dir, "sub/file", O_PATH | O_CLOEXEC);
        CHECK(fd >= 0);
        FAILS(read(fd, text, 1), EBADF);
        FAILS(fchmod(fd, 0600), EBADF);
        CHECK(fstat(fd, &st) == 0 && st.st_size == 7 && (st.st_mode & 07777) == 0640);
        CHECK(fstatat(fd, "", &st, AT_EMPTY_PATH) == 0 && st.st_size == 7);
        CHECK(statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &sx) == 0 && sx.stx_size == 7);
        CHECK(sx.stx_ino == st.st_ino && sx.stx_nlink == 1 && (sx.stx_mask & STATX_BASIC_STATS) == STATX_BASIC_STATS);
        CHECK(faccessat(dir, "sub/file", R_OK, AT_EACCESS) == 0 && close(fd) == 0);
        CHECK(readlinkat(dir, "out", text, 4) == 4 && memcmp(text, "/etc", 4) == 0);
        CHECK(fstatat(dir, "out", &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode) && st.st_size == 11);
        snprintf(text, sizeof text, "%s/sub/up/up/../sub/file", guest_scratch_dir);
        char *real = realpath(text, NULL);
        CHECK(real && strcmp(real, guest_path("sub/file").s) == 0);
        free(real);

        FAILS(unlinkat(dir, "sub", AT_REMOVEDIR), ENOTEMPTY);
        FAILS(unlinkat(dir, "sub", 0), EISDIR);
        FAILS(mkdirat(dir, "sub", 0700), EEXIST);
        CHECK(unlinkat(dir, "sub/up", 0) == 0 && unlinkat(dir, "sub/file", 0) == 0 && unlinkat(dir, "sub", AT_REMOVEDIR) == 0);
        CHECK(unlinkat(dir, "loop", 0) == 0 && unlinkat(dir, "dangling", 0) == 0 && unlinkat(dir, "out", 0) == 0);
        FAILS(unlinkat(dir, "out", 0), ENOENT);
        guest_pause_us(1200);
    }
    CHECK(close(dir) == 0);
    guest_scratch_end();
    return guest_ok();
}
