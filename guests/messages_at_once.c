// Shows: sendmmsg over a local datagram socket: whole batches arrive once, in order, and their counts are right.
// Breaks if: a batch that had left when the primary died is sent again, or is taken as sent when it was not.
#include "guest.h"
#include <sys/socket.h>
#include <sys/uio.h>

enum { BATCHES = 150, BATCH = 4 };

static int pair[2];

static void *sender(void *arg)
{
    (void)arg;
    for (int b = 0; b < BATCHES; b++) {
        uint64_t words[BATCH][3];
        struct iovec v[BATCH];
        struct mmsghdr m[BATCH];
        int sent = 0;

        memset(m, 0, sizeof m);
        for (int i = 0; i < BATCH; i++) {
            words[i][0] = (uint64_t)(b * BATCH + i);
            words[i][1] = words[i][2] = guest_mix(words[i][0]);
            v[i] = (struct iovec){ words[i], 8 * (size_t)(1 + i % 3) };
            m[i].msg_hdr.msg_iov = &v[i];
            m[i].msg_hdr.msg_iovlen = 1;
        }
        while (sent < BATCH) {
            int n = sendmmsg(pair[1], m + sent, BATCH - (unsigned)sent, 0);
            CHECK(n > 0);
            for (int i = sent; i < sent + n; i++)
                CHECK(m[i].msg_len == v[i].iov_len);
            sent += n;
        }
        if (b % 4 == 0)
            guest_pause_us(300);
    }
    return NULL;
}

int main(void)
{
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
    pthread_t t = guest_start(sender, NULL);
    for (uint64_t n = 0; n < BATCHES * BATCH; n++) {
        uint64_t words[3] = { 0 };
        ssize_t bytes = recv(pair[0], words, sizeof words, 0);
        CHECK(bytes == 8 * (ssize_t)(1 + n % BATCH % 3) && words[0] == n);
        CHECK(bytes < 16 || words[1] == guest_mix(n));
    }
    guest_join(t);
    printf("messages %d\n", BATCHES * BATCH);
    return guest_ok();
}
