// Shows: bind, connect, sendto and sendmsg with a structure for any address, of which the rest is what lay on the stack.
// Breaks if: bytes of an address that the kernel does not look at are compared between the copies.
#include "guest.h"
#include "litter.h"
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { ROUNDS = 60 };

static socklen_t address(struct sockaddr_storage *any, int family, in_port_t port)
{
    struct sockaddr_in *four = (struct sockaddr_in *)any;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)any;

    litter(any, sizeof *any);
    any->ss_family = (sa_family_t)family;
    if (family == AF_INET) {
        four->sin_port = port;
        four->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    } else {
        six->sin6_port = port;
        six->sin6_addr = in6addr_loopback;
        six->sin6_flowinfo = six->sin6_scope_id = 0;
    }
    return sizeof *any;
}

static in_port_t port_of(int fd)
{
    struct sockaddr_in6 own;
    socklen_t len = sizeof own;

    CHECK(getsockname(fd, (struct sockaddr *)&own, &len) == 0);
    return own.sin6_port;
}

static void round_of(int family, char byte)
{
    struct sockaddr_storage any;
    struct iovec part = { &byte, 1 };
    char got;

    int from = socket(family, SOCK_DGRAM, 0), to = socket(family, SOCK_DGRAM, 0);
    CHECK(from >= 0 && to >= 0);
    CHECK(bind(to, (struct sockaddr *)&any, address(&any, family, 0)) == 0);
    socklen_t len = address(&any, family, port_of(to));
    CHECK(sendto(from, &byte, 1, 0, (struct sockaddr *)&any, len) == 1);
    CHECK(recv(to, &got, 1, 0) == 1 && got == byte);
    len = address(&any, family, port_of(to));
    struct msghdr message = { .msg_name = &any, .msg_namelen = len, .msg_iov = &part, .msg_iovlen = 1 };
    CHECK(sendmsg(from, &message, 0) == 1);
    CHECK(recv(to, &got, 1, 0) == 1 && got == byte);
    CHECK(connect(from, (struct sockaddr *)&any, address(&any, family, port_of(to))) == 0);
    CHECK(send(from, &byte, 1, 0) == 1 && recv(to, &got, 1, 0) == 1 && got == byte);
    litter(&any, sizeof any);
    any.ss_family = AF_UNSPEC;
    CHECK(connect(from, (struct sockaddr *)&any, sizeof(struct sockaddr)) == 0);
    CHECK(close(from) == 0 && close(to) == 0);
}

static void local_round(char byte)
{
    struct guest_name name = guest_path("socket");
    struct sockaddr_un local;
    char got;

    int from = socket(AF_UNIX, SOCK_DGRAM, 0), to = socket(AF_UNIX, SOCK_DGRAM, 0);
    CHECK(from >= 0 && to >= 0 && strlen(name.s) < sizeof local.sun_path);
    litter(&local, sizeof local);
    local.sun_family = AF_UNIX;
    strcpy(local.sun_path, name.s);
    CHECK(bind(to, (struct sockaddr *)&local, sizeof local) == 0);
    CHECK(sendto(from, &byte, 1, 0, (struct sockaddr *)&local, sizeof local) == 1);
    CHECK(recv(to, &got, 1, 0) == 1 && got == byte);
    CHECK(close(from) == 0 && close(to) == 0 && unlink(name.s) == 0);
}

int main(void)
{
    int six = socket(AF_INET6, SOCK_DGRAM, 0);
    struct sockaddr_in6 own = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
    int has_six = six >= 0 && bind(six, (struct sockaddr *)&own, sizeof own) == 0;

    guest_scratch();
    for (int r = 0; r < ROUNDS; r++) {
        round_of(AF_INET, (char)r);
        if (has_six)
            round_of(AF_INET6, (char)r);
        local_round((char)r);
        guest_pause_us(2000);
    }
    guest_scratch_end();
    printf("rounds %d\n", ROUNDS);
    return guest_ok();
}
