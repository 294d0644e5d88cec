// Shows: children with a listener each on one port (SO_REUSEPORT), and datagrams that the kernel spreads over their sockets: each is answered once.
// Breaks if: a listener's connections go with the copy that took them first, or a child's socket is not its own any more.
// kit: tree
#include "net.h"
#include <poll.h>
#include <sys/wait.h>

enum { CHILDREN = 3, CONNECTIONS = 120 };

static struct sockaddr_in tcp, udp;

static int share_port(int type, struct sockaddr_in *address)
{
    int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0), on = 1;
    socklen_t length = sizeof *address;

    CHECK(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) == 0);
    CHECK(bind(fd, (struct sockaddr *)address, sizeof *address) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)address, &length) == 0);
    return fd;
}

static void child(int ready, int stop)
{
    int listener = share_port(SOCK_STREAM, &tcp), datagrams = share_port(SOCK_DGRAM, &udp);

    CHECK(listen(listener, 16) == 0 && write(ready, "r", 1) == 1);
    for (;;) {
        struct pollfd all[3] = { { listener, POLLIN, 0 }, { datagrams, POLLIN, 0 }, { stop, POLLIN, 0 } };
        long n;
        CHECK(poll(all, 3, -1) > 0);
        if (all[2].revents)
            _exit(0);
        if (all[0].revents) {
            int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
            CHECK(fd >= 0);
            guest_read_all(fd, &n, sizeof n);
            n = -n;
            guest_write_all(fd, &n, sizeof n);
            CHECK(close(fd) == 0);
        }
        if (all[1].revents) {
            struct sockaddr_in from;
            socklen_t length = sizeof from;
            CHECK(recvfrom(datagrams, &n, sizeof n, 0, (struct sockaddr *)&from, &length) == sizeof n);
            n += 1000;
            CHECK(sendto(datagrams, &n, sizeof n, 0, (struct sockaddr *)&from, length) == sizeof n);
        }
    }
}

int main(void)
{
    int ready[2], stop[2], status;
    char byte;

    tcp = udp = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    /* Holds the ports, and takes nothing: it does not listen, and its datagram socket is closed before the first. */
    int hold = share_port(SOCK_STREAM, &tcp), hold_too = share_port(SOCK_DGRAM, &udp);
    CHECK(pipe(ready) == 0 && pipe(stop) == 0);
    for (int i = 0; i < CHILDREN; i++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            CHECK(close(hold) == 0 && close(hold_too) == 0 && close(stop[1]) == 0);
            child(ready[1], stop[0]);
        }
    }
    for (int i = 0; i < CHILDREN; i++)
        guest_read_all(ready[0], &byte, 1);
    CHECK(close(hold_too) == 0);
    for (long n = 1; n <= CONNECTIONS; n++) {
        struct sockaddr_in own;
        int fd = net_connect(&tcp), datagram = net_bound(SOCK_DGRAM, &own);
        long back = n;
        CHECK(sendto(datagram, &back, sizeof back, 0, (struct sockaddr *)&udp, sizeof udp) == sizeof back);
        guest_write_all(fd, &back, sizeof back);
        guest_read_all(fd, &back, sizeof back);
        CHECK(back == -n && recv(datagram, &back, sizeof back, 0) == sizeof back && back == n + 1000);
        CHECK(close(fd) == 0 && close(datagram) == 0);
        guest_pause_us(2000);
    }
    CHECK(close(stop[0]) == 0 && close(stop[1]) == 0);
    for (int i = 0; i < CHILDREN; i++)
        CHECK(wait(&status) > 0 && status == 0);
    CHECK(close(hold) == 0);
    printf("connections %d\n", CONNECTIONS);
    return guest_ok();
}
