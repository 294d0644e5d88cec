// Shows: two threads talk over a stream socketpair, request by request; shutdown gives end of file one way only.
// Breaks if: an in-doubt send is repeated or dropped at a failover.
#include "guest.h"
#include <sys/socket.h>

enum { ROUNDS = 400 };

static int pair[2];

static void *server(void *arg)
{
    uint64_t request;
    long served = 0;

    (void)arg;
    while (recv(pair[1], &request, sizeof request, MSG_WAITALL) == sizeof request) {
        request = guest_mix(request);
        CHECK(send(pair[1], &request, sizeof request, 0) == sizeof request);
        served++;
    }
    CHECK(send(pair[1], "bye", 3, 0) == 3); /* our direction is still open */
    CHECK(close(pair[1]) == 0);
    return guest_ptr(served);
}

int main(void)
{
    uint64_t x = 1, sent, answer;
    char bye[8];

    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    pthread_t t = guest_start(server, NULL);
    for (int r = 0; r < ROUNDS; r++) {
        sent = x;
        guest_write_all(pair[0], &sent, 3);
        guest_write_all(pair[0], (char *)&sent + 3, 5);
        guest_read_all(pair[0], &answer, sizeof answer);
        CHECK(answer == guest_mix(sent));
        x = answer;
        if (r % 8 == 0)
            guest_pause_us(400);
    }
    CHECK(shutdown(pair[0], SHUT_WR) == 0);
    CHECK(recv(pair[0], bye, sizeof bye, MSG_WAITALL) == 3);
    CHECK(recv(pair[0], bye, sizeof bye, 0) == 0);
    CHECK(guest_num(guest_join(t)) == ROUNDS);
    printf("last %016lx\n", (unsigned long)x);
    return guest_ok();
}
