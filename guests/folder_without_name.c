// Shows: a process is in folders that were renamed or removed, while others have their names, and reaches files there.
// Breaks if: the copy that takes over goes to its folder by a name that leads elsewhere.
#include "guest.h"

enum { ROUNDS = 12 };

/* Where this process is: the folder that this descriptor is open for. */
static int is_here(int fd)
{
    struct stat here, there;

    CHECK(stat(".", &here) == 0 && fstat(fd, &there) == 0);
    return here.st_ino == there.st_ino && here.st_dev == there.st_dev;
}

int main(void)
{
    char where[PATH_MAX];

    guest_scratch();
    struct guest_name name = guest_path("a"), other = guest_path("b"), top = guest_path(".");
    for (int r = 0; r < ROUNDS; r++) {
        CHECK(mkdir(name.s, 0700) == 0);
        int fd = open(name.s, O_RDONLY | O_DIRECTORY);
        CHECK(fd >= 0);
        if (r % 3 == 0) {
            /* Removed before it is entered: by its descriptor alone. */
            CHECK(rmdir(name.s) == 0 && fchdir(fd) == 0);
            guest_pause_us(15000);
            CHECK(is_here(fd));
            FAILS(open("file", O_WRONLY | O_CREAT, 0600), ENOENT);
            CHECK(getcwd(where, sizeof where) == NULL && errno == ENOENT);
        } else {
            /* Renamed later, and another one has its name. */
            CHECK(chdir(name.s) == 0);
            guest_pause_us(12000);
            CHECK(rename(name.s, other.s) == 0 && mkdir(name.s, 0700) == 0);
            guest_pause_us(3000);
            CHECK(is_here(fd));
            int file = open("file", O_WRONLY | O_CREAT | O_EXCL, 0600);
            CHECK(file >= 0 && close(file) == 0 && access(guest_path("b/file").s, F_OK) == 0);
            CHECK(getcwd(where, sizeof where) && strcmp(strrchr(where, '/'), "/b") == 0);
            CHECK(unlink("file") == 0);
            if (r % 3 == 2)
                CHECK(chdir(top.s) == 0);
            CHECK(rmdir(name.s) == 0 && rmdir(other.s) == 0);
        }
        CHECK(close(fd) == 0);
    }
    CHECK(chdir("/") == 0);
    guest_scratch_end();
    printf("rounds %d\n", ROUNDS);
    return guest_ok();
}
