// Shows: inotify tells moves by cookie between two watched folders, a folder that goes, a mask that is added to, one event only, and its own end.
// Breaks if: an event that the dead primary had read is told again, or a watch's number is given anew.
// kit: no-checkpoint numbers of watches that were given back before are given once more
#include "guest.h"
#include <sys/inotify.h>

enum { ROUNDS = 40 };

static int fd;
static char buffer[4096];
static ssize_t filled, at;

static const struct inotify_event *next(void)
{
    if (at == filled) {
        filled = read(fd, buffer, sizeof buffer);
        CHECK(filled > 0);
        at = 0;
    }
    const struct inotify_event *event = (const struct inotify_event *)(buffer + at);
    at += (ssize_t)(sizeof *event + event->len);
    return event;
}

static uint32_t expect(int watch, uint32_t mask, const char *name)
{
    const struct inotify_event *event = next();

    CHECK(event->wd == watch && event->mask == mask);
    CHECK(name ? strcmp(event->name, name) == 0 : event->len == 0);
    return event->cookie;
}

int main(void)
{
    char text[8];

    guest_scratch();
    struct guest_name a = guest_path("a"), b = guest_path("b"), x = guest_path("a/x"), y = guest_path("b/y");
    fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    CHECK(fd >= 0 && mkdir(a.s, 0700) == 0);
    FAILS(read(fd, buffer, sizeof buffer), EAGAIN);
    int first = inotify_add_watch(fd, a.s, IN_MOVE | IN_CREATE | IN_DELETE);
    CHECK(first == 1);
    for (int r = 0; r < ROUNDS; r++) {
        CHECK(mkdir(b.s, 0700) == 0);
        int second = inotify_add_watch(fd, b.s, IN_MOVED_TO | IN_ONLYDIR);
        CHECK(second == 2 + 2 * r);
        CHECK(inotify_add_watch(fd, b.s, IN_MASK_ADD | IN_DELETE | IN_DELETE_SELF) == second);
        CHECK(close(open(x.s, O_CREAT | O_WRONLY, 0600)) == 0);
        expect(first, IN_CREATE, "x");
        CHECK(rename(x.s, y.s) == 0);
        uint32_t cookie = expect(first, IN_MOVED_FROM, "x");
        CHECK(cookie != 0 && expect(second, IN_MOVED_TO, "y") == cookie);
        int once = inotify_add_watch(fd, y.s, IN_MODIFY | IN_ATTRIB | IN_ONESHOT);
        CHECK(once == 3 + 2 * r);
        int out = open(y.s, O_RDWR);
        CHECK(out >= 0 && write(out, "1", 1) == 1 && write(out, "2", 1) == 1 && pread(out, text, 2, 0) == 2 && close(out) == 0);
        expect(once, IN_MODIFY, NULL);
        expect(once, IN_IGNORED, NULL);
        FAILS(inotify_rm_watch(fd, once), EINVAL);
        CHECK(unlink(y.s) == 0 && rmdir(b.s) == 0);
        expect(second, IN_DELETE, "y");
        expect(second, IN_DELETE_SELF, NULL);
        expect(second, IN_IGNORED, NULL);
        FAILS(read(fd, buffer, sizeof buffer), EAGAIN);
        guest_pause_us(1000);
    }
    CHECK(inotify_rm_watch(fd, first) == 0);
    expect(first, IN_IGNORED, NULL);
    CHECK(close(fd) == 0 && rmdir(a.s) == 0);
    guest_scratch_end();
    return guest_ok();
}
