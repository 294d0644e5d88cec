// Shows: files and folders that are watched stay watched, by the same numbers, also behind ones that have been given back.
// Breaks if: whoever goes on from a checkpoint watches other files, or calls them by other numbers.
#include "guest.h"
#include <sys/inotify.h>
#include <sys/stat.h>

enum { ROUNDS = 60 };

static void expect(int fd, int watch, uint32_t mask, const char *name)
{
    union {
        struct inotify_event event;
        char bytes[512];
    } got;
    ssize_t bytes = read(fd, &got, sizeof got);

    CHECK(bytes >= (ssize_t)sizeof got.event && got.event.wd == watch && got.event.mask == mask);
    CHECK(name ? strcmp(got.event.name, name) == 0 : got.event.len == 0);
}

int main(void)
{
    int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    char text[64];

    guest_scratch();
    struct guest_name folder = guest_path("folder"), file = guest_path("file"), inner = guest_path("folder/x");
    CHECK(fd >= 0 && mkdir(folder.s, 0700) == 0);
    int out = open(file.s, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(out >= 0);
    CHECK(inotify_add_watch(fd, file.s, IN_ATTRIB) == 1 && inotify_add_watch(fd, folder.s, IN_OPEN) == 2);
    CHECK(inotify_rm_watch(fd, 1) == 0 && inotify_rm_watch(fd, 2) == 0);
    RETURNS(read(fd, text, sizeof text), 2 * sizeof(struct inotify_event));
    CHECK(inotify_add_watch(fd, folder.s, IN_CREATE) == 3 && inotify_add_watch(fd, file.s, IN_MODIFY) == 4);
    for (int r = 0; r < ROUNDS; r++) {
        guest_write_all(out, "a", 1);
        expect(fd, 4, IN_MODIFY, NULL);
        ZERO(mkdir(inner.s, 0700));
        expect(fd, 3, IN_CREATE | IN_ISDIR, "x");
        ZERO(rmdir(inner.s));
        FAILS(read(fd, text, sizeof text), EAGAIN);
        guest_pause_us(1500);
    }
    CHECK(close(out) == 0 && unlink(file.s) == 0 && rmdir(folder.s) == 0);
    guest_scratch_end();
    return guest_ok();
}
