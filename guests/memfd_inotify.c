// Shows: memfd_create with seals; inotify reports what the program does to its own folder, in order.
// Breaks if: events read from inotify are asked for again by the standby, or a sealed size is changed by a copy.
// kit: allow unprotected a writable shared mapping of a file ends protection
// kit: no-kill without a standby nobody takes over
#include "guest.h"
#include <sys/inotify.h>
#include <sys/mman.h>

enum { ROUNDS = 60 };

static uint32_t next_event(int fd, char *name, size_t room)
{
    union {
        struct inotify_event event;
        char room[sizeof(struct inotify_event) + NAME_MAX + 1];
    } buffer;
    ssize_t n = read(fd, &buffer, sizeof buffer.event + 16); /* room for one short event */

    CHECK(n >= (ssize_t)sizeof buffer.event);
    snprintf(name, room, "%s", buffer.event.len ? buffer.event.name : "");
    return buffer.event.mask;
}

int main(void)
{
    long events = 0;

    guest_scratch();
    struct guest_name a = guest_path("a"), b = guest_path("b");
    int watcher = inotify_init1(IN_CLOEXEC);
    CHECK(watcher >= 0 && inotify_add_watch(watcher, guest_scratch_dir, IN_CREATE | IN_MOVE | IN_DELETE) >= 0);
    for (int r = 0; r < ROUNDS; r++) {
        char name[64];
        int fd = open(a.s, O_WRONLY | O_CREAT | O_EXCL, 0600);
        CHECK(fd >= 0 && close(fd) == 0 && rename(a.s, b.s) == 0 && unlink(b.s) == 0);
        CHECK(next_event(watcher, name, sizeof name) == IN_CREATE && strcmp(name, "a") == 0);
        CHECK(next_event(watcher, name, sizeof name) == IN_MOVED_FROM && strcmp(name, "a") == 0);
        CHECK(next_event(watcher, name, sizeof name) == IN_MOVED_TO && strcmp(name, "b") == 0);
        CHECK(next_event(watcher, name, sizeof name) == IN_DELETE && strcmp(name, "b") == 0);
        events += 4;

        int memory = memfd_create("guest", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        CHECK(memory >= 0 && ftruncate(memory, 4096) == 0);
        char text[64] = { 0 };
        snprintf(text, sizeof text, "round %d", r);
        CHECK(pwrite(memory, text, sizeof text, 0) == sizeof text);
        CHECK(pread(memory, name, sizeof name, 0) == sizeof name && strcmp(name, text) == 0);
        CHECK(fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
        FAILS(ftruncate(memory, 8192), EPERM);
        CHECK(close(memory) == 0);
        guest_pause_us(300);
    }
    CHECK(close(watcher) == 0);
    guest_scratch_end();
    printf("events %ld\n", events);
    return guest_ok();
}
