// Shows: single bytes pass a pipe of the process's own once each and in order, whatever they are.
// Breaks if: a read that has brought one byte counts as one that brought none, since the byte is like what lay in its slot.
#include "guest.h"

enum { BYTES = 6000 };

/* The second is what the runtime lays there before it reads. */
static const unsigned char values[] = { 1, 0xa7, 2, 0xa7, 3 };

static void *writes(void *arg)
{
    for (int i = 0; i < BYTES; i++) {
        RETURNS(write((int)guest_num(arg), &values[i % (int)sizeof values], 1), 1);
        if (i % 16 == 0)
            guest_pause_us(100);
    }
    return NULL;
}

int main(void)
{
    int ends[2];
    unsigned char byte;

    ZERO(pipe2(ends, O_CLOEXEC));
    pthread_t writer = guest_start(writes, guest_ptr(ends[1]));
    for (int i = 0; i < BYTES; i++) {
        RETURNS(read(ends[0], &byte, 1), 1);
        CHECK(byte == values[i % (int)sizeof values]);
    }
    guest_join(writer);
    ZERO(close(ends[0]) + close(ends[1]));
    return guest_ok();
}
