// Shows: writing to a pipe without a reader ends the program by SIGPIPE.
// Breaks if: the runtime writes on the guest's behalf with signals blocked, or the standby ends by it too.
// kit: signal 13
#include "guest.h"

int main(void)
{
    int ends[2];
    char c;

    CHECK(pipe(ends) == 0);
    for (int i = 0; i < 80; i++) {
        guest_write_all(ends[1], "x", 1);
        guest_read_all(ends[0], &c, 1);
        guest_pause_us(400);
    }
    guest_ok();
    CHECK(close(ends[0]) == 0);
    if (write(ends[1], "x", 1) != -1)
        return 1;
    return 2; /* write failed, but no signal came */
}
