// Shows: reads, writes, names and results of every length from 0 to 600 at the very end of a page that nothing follows, and
// at every alignment: what is copied is all of it, and nothing beside it.
// Breaks if: a copy of few bytes touches more than its bytes, or loses some where two parts of it overlap.
#include "guest.h"
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { MOST = 600, PAGE = 4096 };

static unsigned char text[MOST + 64];

static void once(int pair[2], unsigned char *end, size_t bytes, size_t shift)
{
    unsigned char *from = end - bytes, *to = end - bytes - shift;
    unsigned char before[64], seen[16];

    // Out of the last bytes of the page, and into bytes before them.
    memcpy(from, text + bytes % 64, bytes);
    CHECK(write(pair[0], from, bytes) == (ssize_t)bytes);
    memset(end - 2 * PAGE, 0xee, 2 * PAGE);
    if (bytes > 0)
        guest_read_all(pair[1], to, bytes);
    CHECK(memcmp(to, text + bytes % 64, bytes) == 0);
    memset(before, 0xee, sizeof before);
    CHECK(memcmp(to - sizeof before, before, sizeof before) == 0);
    CHECK(shift == 0 || memcmp(to + bytes, before, shift) == 0);

    // In two parts, the second as far as the page goes.
    if (bytes >= 2) {
        struct iovec parts[2] = {{seen, 1}, {end - (bytes - 1), bytes - 1}};
        CHECK(write(pair[0], text, bytes) == (ssize_t)bytes);
        for (size_t have = 0; have < bytes;) {
            ssize_t n = have == 0 ? readv(pair[1], parts, 2) : read(pair[1], end - (bytes - have), bytes - have);
            CHECK(n > 0);
            have += (size_t)n;
        }
        CHECK(seen[0] == text[0] && memcmp(end - (bytes - 1), text + 1, bytes - 1) == 0);
    }
}

int main(void)
{
    int pair[2];
    unsigned char *page = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(page != MAP_FAILED);
    CHECK(mprotect(page + 3 * PAGE, PAGE, PROT_NONE) == 0);
    unsigned char *end = page + 3 * PAGE;
    guest_fill(text, sizeof text, 7);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    for (size_t bytes = 0; bytes <= MOST; bytes++)
        once(pair, end, bytes, bytes % 17);

    // A name and a result that end with the page, and results that do not fit.
    for (size_t n = 1; n < 40; n++) {
        char *name = (char *)end - n - 1;
        memset(name, '/', n);
        name[n] = '\0';
        struct stat seen, *at = (struct stat *)(end - sizeof seen);
        CHECK(stat(name, &seen) == 0 && S_ISDIR(seen.st_mode));
        CHECK(stat("/", at) == 0 && at->st_ino == seen.st_ino);
        CHECK(stat("/", (struct stat *)(end - n)) == -1 && errno == EFAULT);
    }
    CHECK(close(pair[0]) == 0 && close(pair[1]) == 0);
    return guest_ok();
}
