// Shows: chdir, fchdir, getcwd, umask and relative names: what a name means depends on the process's state.
// Breaks if: the promoted copy stands in another folder or has another umask: files then appear elsewhere.
#include "guest.h"

enum { ROUNDS = 60 };

int main(void)
{
    long modes = 0;

    guest_scratch();
    int top = open(guest_scratch_dir, O_RDONLY | O_DIRECTORY);
    CHECK(top >= 0 && chdir(guest_scratch_dir) == 0);
    CHECK(mkdir("inner", 0700) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        char where[PATH_MAX];
        struct stat st;
        mode_t mask = r % 2 ? 077 : 027, old = umask(mask);
        CHECK(umask(mask) == mask && old != 07777);
        CHECK(chdir("inner") == 0);
        guest_pause_us(300);
        CHECK(getcwd(where, sizeof where) != NULL && strcmp(strrchr(where, '/'), "/inner") == 0);
        int fd = open("file", O_WRONLY | O_CREAT | O_EXCL, 0666);
        CHECK(fd >= 0 && fstat(fd, &st) == 0 && close(fd) == 0);
        CHECK((st.st_mode & 0777) == (0666 & ~mask));
        modes += st.st_mode & 0777;
        CHECK(fchdir(top) == 0);
        guest_pause_us(100);
        CHECK(access("inner/file", F_OK) == 0 && access("file", F_OK) != 0);
        CHECK(unlink("inner/file") == 0);
    }
    CHECK(rmdir("inner") == 0 && chdir("/") == 0 && close(top) == 0);
    guest_scratch_end();
    printf("modes %ld\n", modes);
    return guest_ok();
}
