// Shows: a large file that nobody changes is mapped, privately and shared, and read after its descriptor is closed.
// Breaks if: its bytes have to travel (of more than 64 MiB they do not), or a standby maps another file than its primary did.
#include "guest.h"

#include <fcntl.h>
#include <sys/mman.h>

enum { MIB = 1 << 20, BYTES = 80 * MIB, ROUNDS = 20 };

static const char *const NAMES[] = { "first", "second" };

/* A file with a hole; its last bytes are its name. */
static void make(const char *name)
{
    int fd = open(guest_path(name).s, O_CREAT | O_WRONLY | O_TRUNC, 0600);

    CHECK(fd >= 0 && ftruncate(fd, BYTES) == 0);
    CHECK(pwrite(fd, name, strlen(name), BYTES - 16) == (ssize_t)strlen(name));
    CHECK(close(fd) == 0);
}

static void *map(const char *name, int how)
{
    int fd = open(guest_path(name).s, O_RDONLY | O_CLOEXEC);

    CHECK(fd >= 0);
    void *at = mmap(NULL, BYTES, how & MAP_PRIVATE ? PROT_READ | PROT_WRITE : PROT_READ, how, fd, 0);
    CHECK(at != MAP_FAILED && close(fd) == 0);
    /* The number is another file's at once. */
    int other = open("/dev/null", O_RDONLY);
    CHECK(other == fd && close(other) == 0);
    return at;
}

int main(void)
{
    guest_scratch();
    make(NAMES[0]);
    make(NAMES[1]);
    /* They have been left alone for so long. */
    for (int i = 0; i < 220; i++)
        guest_pause_us(10000);
    for (int i = 0; i < ROUNDS; i++) {
        const char *name = NAMES[i % 2];
        char *own = map(name, MAP_PRIVATE), *shared = map(name, MAP_SHARED);
        CHECK(strcmp(own + BYTES - 16, name) == 0 && strcmp(shared + BYTES - 16, name) == 0);
        own[i * 4096] = (char)i;
        guest_pause_us(2000);
        CHECK(own[i * 4096] == (char)i && shared[i * 4096] == 0 && own[MIB] == 0);
        printf("%d %s\n", i, shared + BYTES - 16);
        CHECK(munmap(own, BYTES) == 0);
        if (i % 3)
            CHECK(munmap(shared, BYTES) == 0);
    }
    CHECK(unlink(guest_path(NAMES[0]).s) == 0 && unlink(guest_path(NAMES[1]).s) == 0);
    guest_scratch_end();
    return guest_ok();
}
