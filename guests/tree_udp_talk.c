// Shows: parent and child talk by datagrams over loopback: numbered questions and answers of many sizes, several on their way.
// Breaks if: a datagram is sent again, or one that was received is lost, when its process goes on in its other copy.
// kit: tree
// kit: no-checkpoint datagrams that wait are lost
#include "net.h"
#include <sys/wait.h>

enum { ROUNDS = 300, BURST = 3, LARGEST = 4000 };

static unsigned char bytes[LARGEST], wanted[LARGEST];

static size_t size_of(long n) { return sizeof n + guest_mix((uint64_t)n) % (LARGEST - sizeof n); }

static void send_number(int fd, const struct sockaddr_in *to, long n)
{
    guest_fill(bytes, LARGEST, (uint64_t)n);
    memcpy(bytes, &n, sizeof n);
    ssize_t size = (ssize_t)size_of(n);
    CHECK(sendto(fd, bytes, (size_t)size, 0, (const struct sockaddr *)to, sizeof *to) == size);
}

static void take_number(int fd, long n, in_port_t port)
{
    struct sockaddr_in from;
    socklen_t length = sizeof from;

    guest_fill(wanted, LARGEST, (uint64_t)n);
    memcpy(wanted, &n, sizeof n);
    CHECK(recvfrom(fd, bytes, sizeof bytes, 0, (struct sockaddr *)&from, &length) == (ssize_t)size_of(n));
    CHECK(from.sin_port == port && memcmp(bytes, wanted, size_of(n)) == 0);
}

int main(void)
{
    struct sockaddr_in mine, childs;
    int fd = net_bound(SOCK_DGRAM, &mine), of_child = net_bound(SOCK_DGRAM, &childs), status;

    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        CHECK(close(fd) == 0);
        for (long n = 0; n < ROUNDS * BURST; n++) {
            take_number(of_child, n, mine.sin_port);
            send_number(of_child, &mine, n + 1000000);
        }
        _exit(0);
    }
    CHECK(close(of_child) == 0);
    for (long r = 0; r < ROUNDS; r++) {
        for (long b = 0; b < BURST; b++)
            send_number(fd, &childs, r * BURST + b);
        for (long b = 0; b < BURST; b++)
            take_number(fd, r * BURST + b + 1000000, childs.sin_port);
        guest_pause_us(1300);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0 && close(fd) == 0);
    printf("datagrams %d\n", 2 * ROUNDS * BURST);
    return guest_ok();
}
