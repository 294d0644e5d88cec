// Shows: datagrams between abstract names: bound, connected, sent by name, from a name; a name is free once its socket is closed.
// Breaks if: a standby keeps a name taken, or the sender of a message that was taken is not known to the promoted copy.
#include "net.h"
#include <stddef.h>
#include <sys/un.h>

enum { ROUNDS = 60 };

static socklen_t name_of(struct sockaddr_un *name, const char *what)
{
    int n;

    memset(name, 0, sizeof *name);
    name->sun_family = AF_UNIX;
    n = snprintf(name->sun_path + 1, sizeof name->sun_path - 1, "%s/%s", guest_scratch_dir, what);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static int bound(const char *what)
{
    struct sockaddr_un name;
    socklen_t length = name_of(&name, what);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&name, length) == 0);
    return fd;
}

int main(void)
{
    struct sockaddr_un a, b, from;
    long sum = 0, n;

    guest_scratch();
    socklen_t la = name_of(&a, "a"), lb = name_of(&b, "second");
    for (int r = 0; r < ROUNDS; r++) {
        int x = bound("a"), y = bound("second"), z = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        CHECK(z >= 0);
        FAILS(bind(z, (struct sockaddr *)&a, la), EADDRINUSE);
        n = r;
        CHECK(sendto(x, &n, sizeof n, 0, (struct sockaddr *)&b, lb) == sizeof n);
        socklen_t length = sizeof from;
        CHECK(recvfrom(y, &n, sizeof n, 0, (struct sockaddr *)&from, &length) == sizeof n && n == r);
        CHECK(length == la && memcmp(&from, &a, la) == 0);
        CHECK(connect(y, (struct sockaddr *)&from, length) == 0);
        n = r * 2L;
        CHECK(send(y, &n, sizeof n, 0) == sizeof n && recv(x, &n, sizeof n, 0) == sizeof n && n == r * 2L);
        FAILS(sendto(z, &n, sizeof n, 0, (struct sockaddr *)&b, lb), EPERM);
        length = sizeof from;
        CHECK(getpeername(y, (struct sockaddr *)&from, &length) == 0 && length == la && memcmp(&from, &a, la) == 0);
        CHECK(close(y) == 0);
        FAILS(sendto(x, &n, sizeof n, 0, (struct sockaddr *)&b, lb), ECONNREFUSED);
        CHECK(sendto(z, &n, sizeof n, 0, (struct sockaddr *)&a, la) == sizeof n);
        length = sizeof from;
        CHECK(recvfrom(x, &n, sizeof n, MSG_DONTWAIT, (struct sockaddr *)&from, &length) == sizeof n);
        CHECK(length == 0 || length == sizeof(sa_family_t));
        CHECK(close(x) == 0 && close(z) == 0);
        sum += n;
        guest_pause_us(1000);
    }
    guest_scratch_end();
    printf("sum %ld\n", sum);
    return guest_ok();
}
