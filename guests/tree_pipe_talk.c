// Shows: a parent and its child exchange numbered messages of many sizes over two pipes.
// Breaks if: a message is lost, cut or doubled because one of the two went on in its other copy.
// kit: tree
#include "guest.h"
#include <sys/wait.h>

enum { ROUNDS = 400, LARGEST = 6000 };

struct head {
    long number;
    long length;
};

static unsigned char bytes[LARGEST];

static void say(int fd, long number, uint64_t seed)
{
    struct head head = { number, (long)(guest_mix(seed) % LARGEST) };

    guest_fill(bytes, (size_t)head.length, seed);
    guest_write_all(fd, &head, sizeof head);
    guest_write_all(fd, bytes, (size_t)head.length);
}

static void hear(int fd, long number, uint64_t seed)
{
    static unsigned char wanted[LARGEST];
    struct head head;

    guest_read_all(fd, &head, sizeof head);
    CHECK(head.number == number && head.length == (long)(guest_mix(seed) % LARGEST));
    guest_read_all(fd, bytes, (size_t)head.length);
    guest_fill(wanted, (size_t)head.length, seed);
    CHECK(memcmp(bytes, wanted, (size_t)head.length) == 0);
}

static void child(int in, int out)
{
    for (long n = 0; n < ROUNDS; n++) {
        hear(in, n, (uint64_t)n * 2);
        say(out, n, (uint64_t)n * 2 + 1);
    }
    CHECK(read(in, bytes, 1) == 0);
    _exit(11);
}

int main(void)
{
    int down[2], up[2], status;

    CHECK(pipe(down) == 0 && pipe(up) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        CHECK(close(down[1]) == 0 && close(up[0]) == 0);
        child(down[0], up[1]);
    }
    CHECK(close(down[0]) == 0 && close(up[1]) == 0);
    for (long n = 0; n < ROUNDS; n++) {
        say(down[1], n, (uint64_t)n * 2);
        hear(up[0], n, (uint64_t)n * 2 + 1);
        guest_pause_us(1000);
    }
    CHECK(close(down[1]) == 0 && read(up[0], bytes, 1) == 0);
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 11);
    printf("rounds %d\n", ROUNDS);
    return guest_ok();
}
