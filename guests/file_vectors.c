// Shows: readv, writev, preadv, pwritev, preadv2 with several buffers, empty ones among them.
// Breaks if: only the first buffer of a vector is logged, or the total is cut at a buffer's end.
#include "guest.h"
#include <sys/uio.h>

enum { ROUNDS = 80 };

int main(void)
{
    uint64_t digest = 0;

    guest_scratch();
    struct guest_name name = guest_path("vectors");
    int fd = open(name.s, O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0);
    for (int r = 0; r < ROUNDS; r++) {
        unsigned char a[100], b[1], c[3000], back[3101];
        guest_fill(a, sizeof a, (uint64_t)r);
        guest_fill(b, sizeof b, (uint64_t)r + 1);
        guest_fill(c, sizeof c, (uint64_t)r + 2);
        struct iovec out[] = { { a, sizeof a }, { NULL, 0 }, { b, sizeof b }, { c, sizeof c } };
        CHECK(writev(fd, out, 4) == 3101);
        CHECK(pwritev(fd, out, 4, 5000) == 3101);
        CHECK(lseek(fd, 0, SEEK_SET) == 0);
        struct iovec in[] = { { back, 7 }, { back + 7, 3000 }, { back + 3007, 94 } };
        CHECK(readv(fd, in, 3) == 3101);
        CHECK(memcmp(back, a, 100) == 0 && back[100] == b[0] && memcmp(back + 101, c, 3000) == 0);
        memset(back, 0, sizeof back);
        CHECK(preadv(fd, in, 3, 5000) == 3101);
        CHECK(memcmp(back + 101, c, 3000) == 0);
        CHECK(preadv2(fd, in, 2, 5000 + 3101 - 10, 0) == 10);
        digest ^= guest_digest(back, sizeof back);
        CHECK(lseek(fd, 0, SEEK_SET) == 0);
        guest_pause_us(300);
    }
    CHECK(close(fd) == 0 && unlink(name.s) == 0);
    guest_scratch_end();
    printf("digest %016lx\n", (unsigned long)digest);
    return guest_ok();
}
