// Shows: MSG_PEEK, MSG_WAITALL, MSG_TRUNC, MSG_DONTWAIT, sendmsg and recvmsg with vectors, urgent data, half-closed ends.
// Breaks if: a peek is counted as consumed when read = received - queued is settled, or a WAITALL returns short.
#include "net.h"
#include <poll.h>

enum { ROUNDS = 40, BIG = 50000 };

static int pair[2];

static void *trickle(void *arg)
{
    unsigned char *data = (unsigned char *)arg;

    for (int at = 0; at < BIG; at += 10000) {
        guest_write_all(pair[1], data + at, 10000);
        guest_pause_us(100);
    }
    return NULL;
}

int main(void)
{
    static unsigned char data[BIG], back[BIG];
    uint64_t digest = 0;

    net_pair(pair);
    for (int r = 0; r < ROUNDS; r++) {
        char text[16] = { 0 }, a[3], b[5];
        FAILS(recv(pair[0], text, 1, MSG_DONTWAIT), EAGAIN);
        struct iovec out[2] = { { (void *)"hel", 3 }, { (void *)"lo123", 5 } }, in[2] = { { a, 3 }, { b, 5 } };
        struct msghdr send_it = { .msg_iov = out, .msg_iovlen = 2 }, take_it = { .msg_iov = in, .msg_iovlen = 2 };
        CHECK(sendmsg(pair[1], &send_it, 0) == 8);
        CHECK(recv(pair[0], text, 8, MSG_PEEK | MSG_WAITALL) == 8 && memcmp(text, "hello123", 8) == 0);
        CHECK(recv(pair[0], text, 4, MSG_PEEK) == 4);
        CHECK(recvmsg(pair[0], &take_it, MSG_WAITALL) == 8 && memcmp(a, "hel", 3) == 0 && memcmp(b, "lo123", 5) == 0);
        guest_fill(data, BIG, (uint64_t)r);
        pthread_t t = guest_start(trickle, data);
        CHECK(recv(pair[0], back, BIG, MSG_WAITALL) == BIG && memcmp(data, back, BIG) == 0);
        guest_join(t);
        memset(text, 'k', sizeof text);
        CHECK(send(pair[1], "thrown away, kept", 17, 0) == 17);
        CHECK(recv(pair[0], NULL, 5, MSG_TRUNC | MSG_WAITALL) == 5 && recv(pair[0], text, 8, MSG_TRUNC | MSG_WAITALL) == 8);
        CHECK(text[0] == 'k' && recv(pair[0], text, 4, MSG_WAITALL) == 4 && memcmp(text, "kept", 4) == 0);
        CHECK(send(pair[0], "!", 1, MSG_OOB) == 1);
        CHECK(send(pair[0], "n", 1, 0) == 1);
        struct pollfd urgent = { pair[1], POLLPRI, 0 };
        CHECK(poll(&urgent, 1, -1) == 1 && (urgent.revents & POLLPRI));
        CHECK(recv(pair[1], text, 1, MSG_OOB) == 1 && text[0] == '!');
        CHECK(recv(pair[1], text, 1, MSG_WAITALL) == 1 && text[0] == 'n');
        digest = guest_mix(digest ^ guest_digest(back, 1000));
    }
    CHECK(shutdown(pair[1], SHUT_WR) == 0 && recv(pair[0], back, BIG, MSG_WAITALL) == 0);
    CHECK(send(pair[0], "x", 1, 0) == 1 && recv(pair[1], back, 10, 0) == 1);
    printf("digest %016lx\n", (unsigned long)digest);
    return guest_ok();
}
