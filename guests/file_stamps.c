// Shows: times of files set with nanoseconds, to now and not at all; modes, owners, extended attributes on descriptors and links; statvfs.
// Breaks if: a time that the kernel set is read by the standby at a moment of its own, or an attribute is set on the other file.
#include "guest.h"
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <utime.h>

enum { ROUNDS = 40 };

int main(void)
{
    struct statvfs space;
    struct stat st, before;

    guest_scratch();
    struct guest_name name = guest_path("file"), link = guest_path("link");
    int fd = open(name.s, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && symlink("file", link.s) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        struct timespec set[2] = { { 1000000000 + r, 123456789 }, { 1100000000 + r, 987654321 } };
        struct timespec part[2] = { { 0, UTIME_OMIT }, { 0, UTIME_NOW } };
        struct timeval old[2] = { { 900000000 + r, 5 }, { 900000001 + r, 6 } };
        struct utimbuf oldest = { 800000000 + r, 800000001 + r };
        CHECK(futimens(fd, set) == 0 && fstat(fd, &st) == 0);
        CHECK(st.st_atim.tv_sec == 1000000000 + r && st.st_mtim.tv_sec == 1100000000 + r);
        CHECK(st.st_atim.tv_nsec == 123456789 && st.st_mtim.tv_nsec == 987654321);
        CHECK(utimensat(AT_FDCWD, name.s, part, 0) == 0 && stat(name.s, &before) == 0);
        CHECK(before.st_atim.tv_nsec == 123456789 && before.st_mtim.tv_sec > 1100000000 + ROUNDS);
        guest_pause_us(600);
        CHECK(write(fd, "x", 1) == 1 && fstat(fd, &st) == 0 && st.st_size == r + 1);
        CHECK(st.st_mtim.tv_sec > before.st_mtim.tv_sec ||
              (st.st_mtim.tv_sec == before.st_mtim.tv_sec && st.st_mtim.tv_nsec >= before.st_mtim.tv_nsec));
        CHECK(utimes(name.s, old) == 0 && stat(name.s, &st) == 0 && st.st_atim.tv_nsec == 5000 && st.st_mtim.tv_nsec == 6000);
        CHECK(utime(name.s, &oldest) == 0 && stat(name.s, &st) == 0 && st.st_mtime == 800000001 + r);
        CHECK(utimensat(AT_FDCWD, link.s, set, AT_SYMLINK_NOFOLLOW) == 0 && lstat(link.s, &st) == 0);
        CHECK(st.st_mtime == 1100000000 + r && stat(name.s, &st) == 0 && st.st_mtime == 800000001 + r);
        CHECK(fchmod(fd, (mode_t)(0600 | r % 8)) == 0 && fstat(fd, &st) == 0 && (st.st_mode & 0777) == (mode_t)(0600 | r % 8));
        CHECK(fchown(fd, getuid(), (gid_t)-1) == 0 && lchown(link.s, (uid_t)-1, getgid()) == 0);
        CHECK(fchownat(AT_FDCWD, link.s, getuid(), getgid(), AT_SYMLINK_NOFOLLOW) == 0);
        if (fsetxattr(fd, "user.round", &r, sizeof r, 0) == 0) {
            char names[256];
            int back = -1;
            CHECK(getxattr(link.s, "user.round", &back, sizeof back) == sizeof back && back == r);
            CHECK(fgetxattr(fd, "user.round", NULL, 0) == sizeof r && flistxattr(fd, names, sizeof names) >= 11);
            FAILS(fsetxattr(fd, "user.round", &r, sizeof r, XATTR_CREATE), EEXIST);
            FAILS(fgetxattr(fd, "user.round", names, 1), ERANGE);
            CHECK(fremovexattr(fd, "user.round") == 0);
            FAILS(fgetxattr(fd, "user.round", names, sizeof names), ENODATA);
        } else {
            CHECK(errno == EOPNOTSUPP);
        }
        CHECK(fstatvfs(fd, &space) == 0 && space.f_bsize > 0 && statvfs(name.s, &space) == 0 && space.f_namemax >= 255);
        guest_pause_us(600);
    }
    CHECK(close(fd) == 0 && unlink(name.s) == 0 && unlink(link.s) == 0);
    guest_scratch_end();
    return guest_ok();
}
