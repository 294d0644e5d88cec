// Shows: a thread waits in accept while another one duplicates, and closes, a connection of the same listener.
// Breaks if: a duplicate that its call could not say anything of any more is taken for the connection that accept
//            waits for: its local address is that of the listener, as an accepted connection's is.
#include "accept_beside.h"

enum { ROUNDS = 250 };

static void duplicate(int connection)
{
    for (int r = 0; r < ROUNDS; r++) {
        int copy = dup(connection);
        CHECK(copy > connection);
        CHECK(close(copy) == 0);
        guest_pause_us(200);
    }
}

int main(void)
{
    net_accept_beside(duplicate);
    printf("duplicates %d\n", ROUNDS);
    return guest_ok();
}
