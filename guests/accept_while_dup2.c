// Shows: a thread waits in accept while another one duplicates a connection of the same listener to numbers of its choice.
// Breaks if: a dup2, dup3 or F_DUPFD that could not say anything any more has made what is taken for the connection that accept
//            waits for; or accept's own is taken for theirs.
#include "accept_beside.h"

enum { ROUNDS = 250, NUMBER = 60 };

static int copy_of(int connection, int round)
{
    switch (round % 3) {
    case 0:
        return dup2(connection, NUMBER);
    case 1:
        return dup3(connection, NUMBER, O_CLOEXEC);
    default:
        return fcntl(connection, F_DUPFD_CLOEXEC, NUMBER);
    }
}

static void duplicate(int connection)
{
    for (int r = 0; r < ROUNDS; r++) {
        RETURNS(copy_of(connection, r), NUMBER);
        CHECK((fcntl(NUMBER, F_GETFD) == FD_CLOEXEC) == (r % 3 != 0));
        CHECK(close(NUMBER) == 0);
        guest_pause_us(200);
    }
}

int main(void)
{
    CHECK(net_accept_beside(duplicate) < NUMBER);
    printf("duplicates %d\n", ROUNDS);
    return guest_ok();
}
