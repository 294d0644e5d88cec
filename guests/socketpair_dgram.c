// Shows: datagrams and sequenced packets over a socketpair keep their borders; MSG_TRUNC tells the real size.
// Breaks if: a packet is taken twice, cut at the log's entry size, or lost with the primary.
#include "guest.h"
#include <sys/socket.h>

enum { ROUNDS = 60, BURST = 8 };

static int pair[2], seq[2];

static void *sender(void *arg)
{
    unsigned char data[5000];

    (void)arg;
    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 0; i < BURST; i++) {
            size_t len = (size_t)(r * 80 + i + 1);
            guest_fill(data, len, (uint64_t)(r * BURST + i));
            CHECK(send(pair[1], data, len, 0) == (ssize_t)len);
            CHECK(send(seq[1], data, len, 0) == (ssize_t)len);
        }
        guest_pause_us(300);
    }
    return NULL;
}

int main(void)
{
    unsigned char data[5000], want[5000];
    uint64_t digest = 0;

    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0 && socketpair(AF_UNIX, SOCK_SEQPACKET, 0, seq) == 0);
    pthread_t t = guest_start(sender, NULL);
    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 0; i < BURST; i++) {
            ssize_t len = r * 80 + i + 1;
            guest_fill(want, (size_t)len, (uint64_t)(r * BURST + i));
            CHECK(recv(pair[0], data, sizeof data, 0) == len && memcmp(data, want, (size_t)len) == 0);
            CHECK(recv(seq[0], data, 1, MSG_TRUNC) == len && data[0] == want[0]);
            digest = guest_mix(digest ^ data[0]);
        }
    }
    guest_join(t);
    printf("digest %016lx\n", (unsigned long)digest);
    return guest_ok();
}
