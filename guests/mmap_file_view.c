// Shows: a shared read-only mapping of a file shows what is written to the file by write, pwrite, writev and pwritev, also
// after a failover: databases read through such a mapping what they write by calls.
// Breaks if: a standby's own copy of the mapping does not follow those calls, or stays in its place when it is promoted.
#include "guest.h"
#include <sys/mman.h>
#include <sys/uio.h>

enum { ROUNDS = 400, SIZE = 16384, CELLS = SIZE / 8 };

static const volatile uint64_t *early, *late;
static int fd;

/* The same cell through whatever call it is, and a look at it through both mappings. */
static void put(int round, uint64_t value)
{
    uint64_t second = value ^ 0x5555;
    struct iovec parts[2] = { { &value, 8 }, { &second, 8 } };
    off_t cell = (off_t)(guest_mix((uint64_t)round) % (CELLS - 1)), at = cell * 8;

    switch (round % 4) {
    case 0:
        CHECK(pwrite(fd, &value, 8, at) == 8 && pwrite(fd, &second, 8, at + 8) == 8);
        break;
    case 1:
        CHECK(lseek(fd, at, SEEK_SET) == at && write(fd, &value, 8) == 8 && write(fd, &second, 8) == 8);
        break;
    case 2:
        CHECK(lseek(fd, at, SEEK_SET) == at && writev(fd, parts, 2) == 16);
        break;
    default:
        CHECK(pwritev(fd, parts, 2, at) == 16);
    }
    CHECK(early[cell] == value && early[cell + 1] == second);
    CHECK(late[cell] == value && late[cell + 1] == second);
}

static void *run(void *arg)
{
    for (int r = 0; r < ROUNDS; r++) {
        put(r, guest_mix((uint64_t)r + 77));
        guest_pause_us(200);
    }
    return arg;
}

int main(void)
{
    guest_scratch();
    struct guest_name name = guest_path("view");
    fd = open(name.s, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && ftruncate(fd, SIZE) == 0);
    early = (const volatile uint64_t *)mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(early != MAP_FAILED);
    /* A second one, of a descriptor that is closed at once. */
    int other = open(name.s, O_RDONLY | O_CLOEXEC);
    late = (const volatile uint64_t *)mmap(NULL, SIZE, PROT_READ, MAP_SHARED, other, 0);
    CHECK(other >= 0 && late != MAP_FAILED && close(other) == 0);
    run(NULL);
    guest_join(guest_start(run, NULL));
    printf("digest %016lx\n", (unsigned long)guest_digest((const void *)early, SIZE));
    CHECK(munmap((void *)early, SIZE) == 0 && munmap((void *)late, SIZE) == 0);
    CHECK(close(fd) == 0 && unlink(name.s) == 0);
    guest_scratch_end();
    return guest_ok();
}
