// Shows: a parent watches a folder by inotify while its child makes, renames and removes files there; every event is told once, in order.
// Breaks if: a change is made twice because the child went on in its other copy, or an event that was read is lost.
// kit: tree
#include "guest.h"
#include <sys/inotify.h>
#include <sys/wait.h>

enum { ROUNDS = 150 };

static struct guest_name numbered(const char *what, int r)
{
    char name[32];

    snprintf(name, sizeof name, "%s%d", what, r % 10);
    return guest_path(name);
}

static void child(int go)
{
    char byte;

    for (int r = 0; r < ROUNDS; r++) {
        struct guest_name a = numbered("a", r), b = numbered("b", r);
        guest_read_all(go, &byte, 1);
        int fd = open(a.s, O_WRONLY | O_CREAT | O_EXCL, 0600);
        CHECK(fd >= 0 && close(fd) == 0);
        guest_pause_us(700);
        CHECK(rename(a.s, b.s) == 0);
        guest_pause_us(700);
        CHECK(unlink(b.s) == 0);
    }
    _exit(0);
}

static void expect(int fd, uint32_t mask, const char *letter, int r)
{
    union {
        struct inotify_event event;
        char room[sizeof(struct inotify_event) + NAME_MAX + 1];
    } buffer;
    char wanted[32];
    ssize_t n = read(fd, &buffer, sizeof buffer.event + 16); /* room for one short name */

    snprintf(wanted, sizeof wanted, "%s%d", letter, r % 10);
    CHECK(n >= (ssize_t)sizeof buffer.event && buffer.event.mask == mask);
    CHECK(buffer.event.len > 0 && strcmp(buffer.event.name, wanted) == 0);
}

int main(void)
{
    int go[2], status;

    guest_scratch();
    int watcher = inotify_init1(IN_CLOEXEC);
    CHECK(watcher >= 0 && pipe(go) == 0);
    CHECK(inotify_add_watch(watcher, guest_scratch_dir, IN_CREATE | IN_MOVE | IN_DELETE) >= 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        CHECK(close(watcher) == 0);
        child(go[0]);
    }
    for (int r = 0; r < ROUNDS; r++) {
        guest_write_all(go[1], "g", 1);
        expect(watcher, IN_CREATE, "a", r);
        expect(watcher, IN_MOVED_FROM, "a", r);
        expect(watcher, IN_MOVED_TO, "b", r);
        expect(watcher, IN_DELETE, "b", r);
        guest_pause_us(600);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(close(watcher) == 0);
    guest_scratch_end();
    printf("events %d\n", 4 * ROUNDS);
    return guest_ok();
}
