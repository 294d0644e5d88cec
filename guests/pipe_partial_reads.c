// Shows: writes and reads of different sizes through a pipe: short counts, order kept, end of file at the end.
// Breaks if: a count is not in the log, or bytes consumed from the pipe die with the primary.
#include "guest.h"

enum { TOTAL = 1 << 20 };

static int ends[2];

static void *writer(void *arg)
{
    unsigned char *data = (unsigned char *)arg;
    uint64_t x = 1;

    for (size_t at = 0; at < TOTAL; ) {
        x = guest_mix(x);
        size_t len = 1 + x % 9000;
        if (len > TOTAL - at)
            len = TOTAL - at;
        ssize_t n = write(ends[1], data + at, len);
        CHECK(n > 0 && (size_t)n <= len);
        at += (size_t)n;
        if (x % 4 == 0)
            guest_pause_us(200);
    }
    CHECK(close(ends[1]) == 0);
    return NULL;
}

int main(void)
{
    unsigned char *data = (unsigned char *)malloc(TOTAL), *back = (unsigned char *)malloc(TOTAL);
    size_t at = 0;
    uint64_t x = 2;
    ssize_t n;

    guest_fill(data, TOTAL, 1);
    CHECK(pipe(ends) == 0);
    pthread_t t = guest_start(writer, data);
    while (at < TOTAL) {
        x = guest_mix(x);
        size_t len = 1 + x % 7000;
        n = read(ends[0], back + at, len < TOTAL - at ? len : TOTAL - at);
        CHECK(n > 0);
        at += (size_t)n;
    }
    CHECK(read(ends[0], &x, sizeof x) == 0);
    guest_join(t);
    CHECK(at == TOTAL && memcmp(data, back, TOTAL) == 0);
    printf("bytes %zu, digest %016lx\n", at, (unsigned long)guest_digest(back, at));
    return guest_ok();
}
