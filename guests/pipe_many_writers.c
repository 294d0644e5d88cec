// Shows: a pipe that is full most of the time: large writes, vectors at both ends, several writers of whole records.
// Breaks if: a write that fills the pipe, or a read that empties it, is lost or repeated when the primary dies in both.
#include "guest.h"
#include <sys/uio.h>

enum { WRITERS = 3, RECORDS = 1500, LARGE = 40000, ROUNDS = 24 };

struct record {
    uint32_t writer, number;
    uint64_t sum;
};

static int shared[2], large[2];

static void *records(void *arg)
{
    for (uint32_t r = 0; r < RECORDS; r++) {
        struct record one = { (uint32_t)guest_num(arg), r, guest_mix(r) };
        CHECK(write(shared[1], &one, sizeof one) == sizeof one);
        if (r % 16 == 0)
            guest_pause_us(200);
    }
    return NULL;
}

static void *blocks(void *arg)
{
    unsigned char *data = (unsigned char *)arg;

    for (int r = 0; r < ROUNDS; r++) {
        struct iovec v[] = { { data, 77 }, { data + 77, LARGE - 77 } };
        CHECK(r % 2 ? writev(large[1], v, 2) == LARGE : write(large[1], data, LARGE) == LARGE);
    }
    CHECK(close(large[1]) == 0);
    return NULL;
}

static void *drain(void *arg)
{
    unsigned char *data = (unsigned char *)arg, back[9000];
    size_t at = 0;

    for (;;) {
        struct iovec v[] = { { back, 5 }, { back + 5, 3000 } };
        ssize_t n = at % 2 ? readv(large[0], v, 2) : read(large[0], back, sizeof back);
        CHECK(n >= 0);
        if (n == 0)
            break;
        for (ssize_t i = 0; i < n; i++, at++)
            CHECK(back[i] == data[at % LARGE]);
    }
    return guest_ptr((long)at);
}

int main(void)
{
    unsigned char *data = (unsigned char *)malloc(LARGE);
    pthread_t t[WRITERS], out, in;
    uint32_t next[WRITERS] = { 0 };

    guest_fill(data, LARGE, 3);
    CHECK(pipe(shared) == 0 && pipe(large) == 0);
    out = guest_start(blocks, data);
    in = guest_start(drain, data);
    for (int i = 0; i < WRITERS; i++)
        t[i] = guest_start(records, guest_ptr(i));
    for (int n = 0; n < WRITERS * RECORDS; n++) {
        struct record one;
        CHECK(read(shared[0], &one, sizeof one) == sizeof one);
        CHECK(one.writer < WRITERS && one.number == next[one.writer] && one.sum == guest_mix(one.number));
        next[one.writer]++;
    }
    for (int i = 0; i < WRITERS; i++)
        guest_join(t[i]);
    guest_join(out);
    CHECK(guest_num(guest_join(in)) == (long)LARGE * ROUNDS);
    printf("records %d, bytes %ld\n", WRITERS * RECORDS, (long)LARGE * ROUNDS);
    return guest_ok();
}
