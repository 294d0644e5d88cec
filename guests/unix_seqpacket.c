// Shows: records over SOCK_SEQPACKET: their ends are kept, a short buffer cuts one (MSG_TRUNC), an empty read is the end.
// Breaks if: two records are told as one, a cut one is told twice, or its length is lost with the primary.
#include "net.h"
#include <sys/un.h>

enum { ROUNDS = 60, RECORDS = 6 };

static void *serve(void *arg)
{
    int listener = (int)guest_num(arg);

    for (int r = 0; r < ROUNDS; r++) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        char record[256];
        ssize_t got;
        CHECK(fd >= 0);
        while ((got = recv(fd, record, sizeof record, 0)) > 0)
            CHECK(send(fd, record, (size_t)got, MSG_EOR) == got);
        CHECK(got == 0 && close(fd) == 0);
    }
    return NULL;
}

int main(void)
{
    struct sockaddr_un name = { .sun_family = AF_UNIX };
    socklen_t length = sizeof(sa_family_t);
    int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    uint64_t digest = 0;

    CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&name, length) == 0 && listen(listener, 4) == 0);
    length = sizeof name;
    CHECK(getsockname(listener, (struct sockaddr *)&name, &length) == 0 && length > sizeof(sa_family_t));
    pthread_t server = guest_start(serve, guest_ptr(listener));
    for (int r = 0; r < ROUNDS; r++) {
        unsigned char out[200], in[200];
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&name, length) == 0);
        for (int n = 0; n < RECORDS; n++) {
            guest_fill(out, sizeof out, (uint64_t)(r * RECORDS + n));
            CHECK(send(fd, out, (size_t)(20 + 30 * n), 0) == 20 + 30 * n);
        }
        for (int n = 0; n < RECORDS; n++) {
            int wanted = 20 + 30 * n, room = n % 2 ? 200 : 15;
            struct iovec part = { in, (size_t)room };
            struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
            ssize_t got = recvmsg(fd, &message, 0);
            CHECK(got == (n % 2 ? wanted : 15) && (message.msg_flags & MSG_TRUNC) == (n % 2 ? 0 : MSG_TRUNC));
            guest_fill(out, sizeof out, (uint64_t)(r * RECORDS + n));
            CHECK(memcmp(in, out, (size_t)got) == 0);
            digest = guest_mix(digest ^ guest_digest(in, (size_t)got));
        }
        CHECK(shutdown(fd, SHUT_WR) == 0 && recv(fd, in, sizeof in, 0) == 0 && close(fd) == 0);
        guest_pause_us(800);
    }
    guest_join(server);
    CHECK(close(listener) == 0);
    printf("digest %016lx\n", (unsigned long)digest);
    return guest_ok();
}
