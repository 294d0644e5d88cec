// Shows: SEEK_DATA and SEEK_HOLE, fallocate with holes punched, ranges zeroed and sizes kept, posix_fadvise, sync_file_range, ftruncate beyond the end.
// Breaks if: a range is punched twice with bytes written between, or the offset of a seek is told by the standby's own file.
#include "guest.h"

enum { ROUNDS = 30, BLOCK = 65536, SIZE = 8 * BLOCK };

int main(void)
{
    static unsigned char data[SIZE], back[SIZE];
    uint64_t digest = 0;

    guest_scratch();
    struct guest_name name = guest_path("holes");
    int fd = open(name.s, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    for (int r = 0; r < ROUNDS; r++) {
        struct stat st;
        CHECK(ftruncate(fd, 0) == 0 && ftruncate(fd, SIZE) == 0);
        guest_fill(data, SIZE, (uint64_t)r);
        memset(data, 0, BLOCK);
        memset(data + 3 * BLOCK, 0, 2 * BLOCK);
        memset(data + 7 * BLOCK, 0, BLOCK);
        CHECK(pwrite(fd, data + BLOCK, 2 * BLOCK, BLOCK) == 2 * BLOCK);
        CHECK(pwrite(fd, data + 5 * BLOCK, 2 * BLOCK, 5 * BLOCK) == 2 * BLOCK);
        off_t at = lseek(fd, 0, SEEK_DATA), hole = lseek(fd, BLOCK, SEEK_HOLE);
        CHECK((at == BLOCK && hole == 3 * BLOCK) || (at == 0 && hole == SIZE)); /* the second: a file system without holes */
        CHECK(posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL) == 0 && sync_file_range(fd, 0, BLOCK, SYNC_FILE_RANGE_WRITE) == 0);
        if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 2 * BLOCK, BLOCK) == 0)
            memset(data + 2 * BLOCK, 0, BLOCK);
        else
            CHECK(errno == EOPNOTSUPP);
        if (fallocate(fd, FALLOC_FL_ZERO_RANGE, 5 * BLOCK + 100, 1000) == 0)
            memset(data + 5 * BLOCK + 100, 0, 1000);
        else
            CHECK(errno == EOPNOTSUPP);
        CHECK(fallocate(fd, FALLOC_FL_KEEP_SIZE, SIZE, BLOCK) == 0 || errno == EOPNOTSUPP);
        CHECK(fstat(fd, &st) == 0 && st.st_size == SIZE && lseek(fd, -BLOCK, SEEK_END) == SIZE - BLOCK);
        FAILS(lseek(fd, SIZE + 1, SEEK_DATA), ENXIO);
        CHECK(lseek(fd, 0, SEEK_CUR) == SIZE - BLOCK && lseek(fd, 0, SEEK_SET) == 0);
        guest_read_all(fd, back, SIZE);
        CHECK(memcmp(data, back, SIZE) == 0);
        digest = guest_mix(digest ^ r);
        guest_pause_us(1000);
    }
    CHECK(close(fd) == 0 && unlink(name.s) == 0);
    guest_scratch_end();
    printf("digest %016lx\n", (unsigned long)digest);
    return guest_ok();
}
