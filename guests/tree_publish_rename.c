// Shows: a writer publishes a file by write, fsync and rename; readers in other processes always find one that is whole, and never an older one.
// Breaks if: a rename in doubt is made again behind a newer one, or a reader's copy opens what its primary did not.
// kit: tree
#include "guest.h"
#include <sys/wait.h>

enum { VERSIONS = 120, READERS = 2, SIZE = 5000 };

static void reader(const char *name, int done)
{
    unsigned char data[SIZE + 8], wanted[SIZE];
    long last = -1, reads = 0;

    while (last < VERSIONS - 1) {
        int fd = open(name, O_RDONLY | O_CLOEXEC);
        long version;
        CHECK(fd >= 0);
        CHECK(read(fd, data, sizeof data) == sizeof version + SIZE);
        memcpy(&version, data, sizeof version);
        guest_fill(wanted, SIZE, (uint64_t)version);
        CHECK(version >= last && memcmp(data + sizeof version, wanted, SIZE) == 0 && close(fd) == 0);
        last = version;
        reads++;
        guest_pause_us(900);
    }
    CHECK(reads > 0);
    guest_write_all(done, &last, sizeof last);
    _exit(0);
}

static void publish(const char *name, const char *fresh, long version)
{
    unsigned char data[SIZE];
    int fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    guest_fill(data, SIZE, (uint64_t)version);
    CHECK(fd >= 0 && write(fd, &version, sizeof version) == sizeof version && write(fd, data, SIZE) == SIZE);
    CHECK(fdatasync(fd) == 0 && close(fd) == 0 && rename(fresh, name) == 0);
}

int main(void)
{
    int ends[2], status;
    long last;

    guest_scratch();
    struct guest_name name = guest_path("file"), fresh = guest_path("file.new");
    CHECK(pipe(ends) == 0);
    publish(name.s, fresh.s, 0);
    for (int i = 0; i < READERS; i++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
            reader(name.s, ends[1]);
    }
    for (long v = 1; v < VERSIONS; v++) {
        publish(name.s, fresh.s, v);
        guest_pause_us(2500);
    }
    for (int i = 0; i < READERS; i++) {
        guest_read_all(ends[0], &last, sizeof last);
        CHECK(last == VERSIONS - 1 && wait(&status) > 0 && status == 0);
    }
    CHECK(unlink(name.s) == 0);
    guest_scratch_end();
    printf("versions %d\n", VERSIONS);
    return guest_ok();
}
