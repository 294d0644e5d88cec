// A write of more than a pipe holds, read slowly while it waits for room.
#ifndef LONG_PIPE_H
#define LONG_PIPE_H

#include "guest.h"

enum { LONG_BYTES = 200000, LONG_PIECE = 20000 };

static unsigned char long_bytes[LONG_BYTES];

static inline void *long_pipe_writes(void *arg)
{
    guest_write_all((int)guest_num(arg), long_bytes, LONG_BYTES);
    return NULL;
}

/* Other bytes in each round; they come whole and once. */
static inline void long_pipe_passes(int round)
{
    static unsigned char back[LONG_PIECE];
    int ends[2];

    ZERO(pipe2(ends, O_CLOEXEC));
    guest_fill(long_bytes, LONG_BYTES, (uint64_t)round << 32);
    pthread_t writer = guest_start(long_pipe_writes, guest_ptr(ends[1]));
    for (size_t at = 0; at < LONG_BYTES;) {
        ssize_t got = read(ends[0], back, LONG_BYTES - at < LONG_PIECE ? LONG_BYTES - at : LONG_PIECE);
        CHECK(got > 0);
        ZERO(memcmp(long_bytes + at, back, (size_t)got));
        at += (size_t)got;
        guest_pause_us(1000);
    }
    guest_join(writer);
    ZERO(close(ends[0]) + close(ends[1]));
}

#endif
