// Shows: 120 children, by posix_spawn and by vfork in turn, each of which leaves one byte in a file and ends at once: as many bytes as children.
// Breaks if: a spawn during which its process is killed is made a second time, or its child is not found by wait.
#include "guest.h"
#include <spawn.h>
#include <sys/wait.h>

enum { CHILDREN = 120 };

extern char **environ;

static pid_t spawned(const char *name, const char *place)
{
    const char *const argv[] = { name, place, NULL };
    pid_t pid;

    ZERO(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, (char *const *)argv, environ));
    return pid;
}

static pid_t vforked(const char *name, const char *place)
{
    pid_t pid = vfork();

    if (pid == 0) {
        execl("/proc/self/exe", name, place, NULL);
        _exit(120);
    }
    return pid;
}

int main(int argc, char **argv)
{
    char place[16];
    struct stat now;

    if (argc == 2) {
        guest_write_all(atoi(argv[1]), "x", 1);
        _exit(7);
    }
    FILE *file = tmpfile();
    CHECK(file);
    int fd = fileno(file);
    snprintf(place, sizeof place, "%d", fd);
    CHECK(fcntl(fd, F_SETFD, 0) == 0 && fcntl(fd, F_SETFL, O_APPEND) == 0);
    for (int c = 0; c < CHILDREN; c++) {
        int status;
        pid_t pid = (c % 2 ? vforked : spawned)(argv[0], place);
        CHECK(pid > 0);
        CHECK(waitpid(c % 3 ? pid : -1, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
        CHECK(fstat(fd, &now) == 0 && now.st_size == c + 1);
    }
    FAILS(waitpid(-1, NULL, 0), ECHILD);
    printf("bytes %ld\n", (long)now.st_size);
    return guest_ok();
}
