// Shows: parent and child send to each other at the same time over one stream socket, in bursts, and in records over another.
// Breaks if: a sender that went on in its other copy repeats bytes, or a reader misses what was sent meanwhile.
// kit: tree
#include "guest.h"
#include <sys/socket.h>
#include <sys/wait.h>

enum { BURSTS = 250, LONGS = 700 };

/* Each side only writes its own sequence and reads the other's: nobody waits for an answer. */
static void write_sequence(int fd, long from)
{
    long line[LONGS];

    for (long b = 0, n = 0; b < BURSTS; b++) {
        long count = 1 + (long)(guest_mix((uint64_t)(from + b)) % LONGS);
        for (long i = 0; i < count; i++)
            line[i] = from + n++;
        guest_write_all(fd, line, (size_t)count * sizeof line[0]);
        guest_pause_us(1500);
    }
    CHECK(shutdown(fd, SHUT_WR) == 0);
}

static long read_sequence(int fd, long from)
{
    union {
        long numbers[LONGS];
        char bytes[LONGS * sizeof(long)];
    } line;
    long n = 0;

    for (size_t have = 0;;) {
        ssize_t got = read(fd, line.bytes + have, sizeof line - have);
        CHECK(got >= 0);
        if (got == 0) {
            CHECK(have == 0);
            return n;
        }
        have += (size_t)got;
        size_t whole = have / sizeof(long);
        for (size_t i = 0; i < whole; i++)
            CHECK(line.numbers[i] == from + n++);
        have -= whole * sizeof(long);
        memmove(line.bytes, line.numbers + whole, have);
    }
}

static void *write_mine(void *arg)
{
    write_sequence((int)guest_num(arg), 0);
    return NULL;
}

static void *write_childs(void *arg)
{
    write_sequence((int)guest_num(arg), 1000000);
    return NULL;
}

static void child(int stream, int records)
{
    pthread_t t = guest_start(write_childs, guest_ptr(stream));
    long n = read_sequence(stream, 0);

    guest_join(t);
    CHECK(send(records, &n, sizeof n, 0) == sizeof n);
    _exit(0);
}

int main(void)
{
    int stream[2], records[2], status;
    long n, told[2];

    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, stream) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, records) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        CHECK(close(stream[0]) == 0 && close(records[0]) == 0);
        child(stream[1], records[1]);
    }
    CHECK(close(stream[1]) == 0 && close(records[1]) == 0);
    pthread_t t = guest_start(write_mine, guest_ptr(stream[0]));
    n = read_sequence(stream[0], 1000000);
    guest_join(t);
    CHECK(recv(records[0], told, sizeof told, 0) == sizeof told[0]);
    CHECK(recv(records[0], told + 1, sizeof told[1], 0) == 0);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    printf("received %ld and %ld\n", n, told[0]);
    return guest_ok();
}
