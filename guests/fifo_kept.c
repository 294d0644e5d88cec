// Shows: what waits in a named pipe of the program's own is there when it is read, in order.
// Breaks if: a copy, or whoever goes on from a checkpoint, has another pipe, or the pipe without what was in it.
#include "guest.h"
#include <sys/stat.h>

enum { ROUNDS = 60 };

int main(void)
{
    guest_scratch();
    struct guest_name name = guest_path("fifo");
    char text[64];
    long sum = 0;

    ZERO(mkfifo(name.s, 0600));
    int both = open(name.s, O_RDWR | O_CLOEXEC), writer = open(name.s, O_WRONLY | O_CLOEXEC);
    int reader = open(name.s, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    CHECK(both >= 0 && writer >= 0 && reader >= 0);
    for (int r = 0; r < ROUNDS; r++) {
        guest_write_all(writer, &r, sizeof r);
        guest_write_all(both, "behind", 6);
        guest_pause_us(1500);
        int got;
        RETURNS(read(reader, &got, sizeof got), sizeof got);
        CHECK(got == r);
        RETURNS(read(both, text, sizeof text), 6);
        CHECK(memcmp(text, "behind", 6) == 0);
        FAILS(read(reader, text, sizeof text), EAGAIN);
        sum += got;
    }
    printf("sum %ld\n", sum);
    CHECK(close(both) == 0 && close(writer) == 0 && close(reader) == 0 && unlink(name.s) == 0);
    guest_scratch_end();
    return guest_ok();
}
