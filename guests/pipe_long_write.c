// Shows: a write of more than a pipe holds, read slowly while it waits for room, arrives whole and once.
// Breaks if: readers have told of more than the log knows to have gone in, and the contents of the pipe say nothing then.
#include "guest.h"

enum { BYTES = 200000, PIECE = 20000, ROUNDS = 24 };

static unsigned char bytes[BYTES];

static void *writes(void *arg)
{
    guest_write_all((int)guest_num(arg), bytes, BYTES);
    return NULL;
}

int main(void)
{
    static unsigned char back[PIECE];

    for (int round = 0; round < ROUNDS; round++) {
        int ends[2];

        ZERO(pipe2(ends, O_CLOEXEC));
        guest_fill(bytes, BYTES, (uint64_t)round << 32);
        pthread_t writer = guest_start(writes, guest_ptr(ends[1]));
        for (size_t at = 0; at < BYTES;) {
            ssize_t got = read(ends[0], back, BYTES - at < PIECE ? BYTES - at : PIECE);
            CHECK(got > 0);
            ZERO(memcmp(bytes + at, back, (size_t)got));
            at += (size_t)got;
            guest_pause_us(1000);
        }
        guest_join(writer);
        ZERO(close(ends[0]) + close(ends[1]));
    }
    return guest_ok();
}
