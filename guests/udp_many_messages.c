// Shows: sendmmsg and recvmmsg: several datagrams in one call, each with its own length and address.
// Breaks if: only the first message of the vector is logged, or the count is not.
// kit: no-checkpoint datagrams that wait at a socket are lost, as datagrams may be
#include "net.h"

enum { ROUNDS = 60, BATCH = 6 };

int main(void)
{
    struct sockaddr_in to, own;
    int server = net_bound(SOCK_DGRAM, &to), client = net_bound(SOCK_DGRAM, &own);
    uint64_t digest = 0;

    for (int r = 0; r < ROUNDS; r++) {
        struct mmsghdr out[BATCH] = { 0 }, in[BATCH] = { 0 };
        struct iovec ov[BATCH], iv[BATCH];
        struct sockaddr_in from[BATCH];
        unsigned char data[BATCH][700], back[BATCH][700];
        int got = 0;
        for (int i = 0; i < BATCH; i++) {
            size_t len = (size_t)(1 + i * 100 + r);
            guest_fill(data[i], len, (uint64_t)(r * BATCH + i));
            ov[i] = (struct iovec){ data[i], len };
            iv[i] = (struct iovec){ back[i], sizeof back[i] };
            out[i].msg_hdr = (struct msghdr){ .msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &ov[i], .msg_iovlen = 1 };
            in[i].msg_hdr = (struct msghdr){ .msg_name = &from[i], .msg_namelen = sizeof from[i], .msg_iov = &iv[i], .msg_iovlen = 1 };
        }
        CHECK(sendmmsg(client, out, BATCH, 0) == BATCH);
        while (got < BATCH) {
            int n = recvmmsg(server, in + got, (unsigned)(BATCH - got), MSG_WAITFORONE, NULL);
            CHECK(n > 0);
            got += n;
        }
        for (int i = 0; i < BATCH; i++) {
            CHECK(out[i].msg_len == ov[i].iov_len && in[i].msg_len == ov[i].iov_len);
            CHECK(from[i].sin_port == own.sin_port && memcmp(data[i], back[i], ov[i].iov_len) == 0);
            digest = guest_mix(digest ^ guest_digest(back[i], in[i].msg_len));
        }
        guest_pause_us(400);
    }
    printf("digest %016lx\n", (unsigned long)digest);
    return guest_ok();
}
