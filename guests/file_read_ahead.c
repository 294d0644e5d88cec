// Shows: one thread reads a file from end to end in large pieces, plain and by place: each byte comes once.
// Breaks if: a read in doubt, whose bytes died with the primary in the program's own buffer, is taken for done or goes on from
// where the file is now.
#include "guest.h"

enum { SIZE = 3 << 20, ROUNDS = 14 };

static const size_t pieces[] = { 8192, 16384, 12345, 262144, 65536, 100, 9000 };

int main(void)
{
    unsigned char *data = (unsigned char *)malloc(SIZE), *back = (unsigned char *)malloc(SIZE);
    uint64_t digest = 0;

    guest_scratch();
    struct guest_name name = guest_path("ahead");
    guest_fill(data, SIZE, 7);
    int out = open(name.s, O_WRONLY | O_CREAT, 0600);
    CHECK(out >= 0 && write(out, data, SIZE) == SIZE && close(out) == 0);
    int fd = open(name.s, O_RDONLY);
    CHECK(fd >= 0);
    for (int r = 0; r < ROUNDS; r++) {
        size_t at = 0;
        memset(back, 0, SIZE);
        CHECK(lseek(fd, 0, SEEK_SET) == 0);
        for (int i = 0; at < SIZE; i++) {
            size_t piece = pieces[(size_t)(i + r) % (sizeof pieces / sizeof *pieces)];
            if (piece > SIZE - at)
                piece = SIZE - at;
            ssize_t got = i % 3 == 2 ? pread(fd, back + at, piece, (off_t)at) : read(fd, back + at, piece);
            CHECK(got > 0 && (size_t)got <= SIZE - at);
            at += (size_t)got;
            if (i % 3 == 2)
                CHECK(lseek(fd, got, SEEK_CUR) == (off_t)at);
        }
        CHECK(read(fd, data, SIZE) == 0); /* its end */
        CHECK(memcmp(data, back, SIZE) == 0);
        digest = guest_mix(digest ^ guest_digest(back, SIZE));
        guest_pause_us(300);
    }
    CHECK(close(fd) == 0 && unlink(name.s) == 0);
    free(data);
    free(back);
    guest_scratch_end();
    printf("digest %016lx\n", (unsigned long)digest);
    return guest_ok();
}
