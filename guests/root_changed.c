// Shows: a process makes a folder without /proc its root, finds nothing outside, and has its old root back at last.
// Breaks if: the copy that takes over has the root that its primary had before.
#include "guest.h"

enum { ROUNDS = 100 };

static void stay(ino_t root, int out)
{
    struct stat st;
    char byte = 0;

    for (int r = 0; r < ROUNDS; r++) {
        CHECK(stat("/", &st) == 0 && st.st_ino == root);
        CHECK(stat("/../..", &st) == 0 && st.st_ino == root);
        FAILS(access("/etc/passwd", F_OK), ENOENT);
        CHECK(access("/inside", F_OK) == 0);
        int file = open("/file", O_RDWR | O_CREAT, 0600);
        CHECK(file >= 0 && write(file, "x", 1) == 1 && close(file) == 0 && unlink("/file") == 0);
        guest_write_all(out, &byte, 1);
        guest_pause_us(1000);
    }
}

int main(void)
{
    struct stat st;
    char bytes[ROUNDS];
    int ends[2];

    if (geteuid() != 0) {
        puts("not root: nobody else may change his root");
        return guest_ok();
    }
    guest_scratch();
    struct guest_name jail = guest_path("jail"), inside = guest_path("jail/inside");
    CHECK(mkdir(jail.s, 0755) == 0 && mkdir(inside.s, 0755) == 0 && pipe(ends) == 0);
    int back = open("/", O_RDONLY | O_DIRECTORY);
    CHECK(back >= 0 && stat(jail.s, &st) == 0);
    guest_pause_us(20000);
    CHECK(chdir(jail.s) == 0 && chroot(".") == 0 && chdir("/") == 0);
    stay(st.st_ino, ends[1]);
    guest_read_all(ends[0], bytes, sizeof bytes);
    /* The way out that root has. */
    CHECK(fchdir(back) == 0 && chroot(".") == 0 && access("/etc/passwd", F_OK) == 0);
    CHECK(rmdir(inside.s) == 0 && rmdir(jail.s) == 0);
    guest_scratch_end();
    printf("rounds %d\n", ROUNDS);
    return guest_ok();
}
