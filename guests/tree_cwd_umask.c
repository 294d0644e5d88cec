// Shows: a child changes its working folder and umask again and again and makes files by relative names; the parent keeps its own.
// Breaks if: the copy that a process goes on in has another folder or umask than it had, or its parent's.
// kit: tree
#include "guest.h"
#include <sys/wait.h>

enum { FOLDERS = 3, ROUNDS = 200 };

static void child(int go, int done)
{
    char byte, where[PATH_MAX], name[16];

    for (int r = 0; r < ROUNDS; r++) {
        struct stat st;
        mode_t mask = (mode_t)(r % 8 * 9), old;
        guest_read_all(go, &byte, 1);
        snprintf(name, sizeof name, "../d%d", r % FOLDERS);
        CHECK(chdir(name) == 0);
        old = umask(mask);
        CHECK(r == 0 || old == (mode_t)((r - 1) % 8 * 9));
        guest_pause_us(500);
        int fd = open("file", O_WRONLY | O_CREAT | O_EXCL, 0666);
        CHECK(fd >= 0 && fstat(fd, &st) == 0 && (st.st_mode & 0777) == (0666 & ~mask) && close(fd) == 0);
        CHECK(getcwd(where, sizeof where) && strcmp(strrchr(where, '/') + 1, name + 3) == 0);
        guest_write_all(done, &r, sizeof r);
    }
    _exit(0);
}

int main(void)
{
    char before[PATH_MAX], now[PATH_MAX], name[32];
    int go[2], done[2], status, told;

    guest_scratch();
    for (int f = 0; f < FOLDERS; f++) {
        snprintf(name, sizeof name, "d%d", f);
        CHECK(mkdir(guest_path(name).s, 0700) == 0);
    }
    CHECK(chdir(guest_path("d0").s) == 0 && getcwd(before, sizeof before));
    umask(027);
    CHECK(pipe(go) == 0 && pipe(done) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        umask(0);
        child(go[0], done[1]);
    }
    for (int r = 0; r < ROUNDS; r++) {
        guest_write_all(go[1], "g", 1);
        guest_read_all(done[0], &told, sizeof told);
        CHECK(told == r);
        snprintf(name, sizeof name, "../d%d/file", r % FOLDERS);
        CHECK(unlink(name) == 0);
        CHECK(getcwd(now, sizeof now) && strcmp(now, before) == 0);
        CHECK(umask(027) == 027);
        guest_pause_us(800);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0 && chdir("/") == 0);
    for (int f = 0; f < FOLDERS; f++) {
        snprintf(name, sizeof name, "d%d", f);
        CHECK(rmdir(guest_path(name).s) == 0);
    }
    guest_scratch_end();
    printf("rounds %d\n", ROUNDS);
    return guest_ok();
}
