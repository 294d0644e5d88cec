// Shows: a stream carried from one pair of local sockets to another by splice over a pipe, asked for more than is there, for all of
// it and for less; beside a thread that starts one program after the other.
// Breaks if: the pipe counts as one that a started program has, though it is closed at its exec: then nothing tells of a splice.
#include "net.h"
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>

extern char **environ;

enum { TOTAL = 300000, STEP = 1500 };

static int from[2], to[2];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int done;

static int is_done(int now)
{
    ZERO(pthread_mutex_lock(&lock));
    now = done |= now;
    ZERO(pthread_mutex_unlock(&lock));
    return now;
}

static void *starter(void *arg)
{
    char *const argv[] = { (char *)"guest", (char *)"ends", NULL };

    (void)arg;
    while (!is_done(0)) {
        pid_t pid;
        int status;
        ZERO(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ));
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    return NULL;
}

static void *writer(void *arg)
{
    static unsigned char data[STEP];

    (void)arg;
    for (int at = 0; at < TOTAL; at += STEP) {
        guest_fill(data, STEP, (uint64_t)at);
        guest_write_all(from[0], data, STEP);
        guest_pause_us(400);
    }
    CHECK(shutdown(from[0], SHUT_WR) == 0);
    return NULL;
}

static void *reader(void *arg)
{
    static unsigned char data[STEP], wanted[STEP];
    char more;

    (void)arg;
    for (int at = 0; at < TOTAL; at += STEP) {
        guest_fill(wanted, STEP, (uint64_t)at);
        guest_read_all(to[1], data, STEP);
        CHECK(memcmp(data, wanted, STEP) == 0);
    }
    CHECK(read(to[1], &more, 1) == 0);
    return NULL;
}

int main(int argc, char **argv)
{
    static const size_t asked[] = { 4096, 1000, 65536, 1500 };
    int ends[2];
    long carried = 0;

    (void)argv;
    if (argc > 1)
        return 0;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, from) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, to) == 0);
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    pthread_t w = guest_start(writer, NULL), r = guest_start(reader, NULL), s = guest_start(starter, NULL);
    for (int round = 0;; round++) {
        struct pollfd ready = { from[1], POLLIN, 0 };
        if (round % 2)
            CHECK(poll(&ready, 1, -1) == 1);
        ssize_t n = splice(from[1], NULL, ends[1], NULL, asked[round % 4], round % 2 ? SPLICE_F_NONBLOCK : 0);
        CHECK(n >= 0);
        if (n == 0)
            break;
        while (n > 0) {
            ssize_t m = splice(ends[0], NULL, to[0], NULL, round % 3 ? (size_t)n : 3000, SPLICE_F_MOVE);
            CHECK(m > 0 && m <= n);
            n -= m;
            carried += m;
        }
    }
    CHECK(shutdown(to[0], SHUT_WR) == 0);
    guest_join(w);
    guest_join(r);
    is_done(1);
    guest_join(s);
    printf("carried %ld\n", carried);
    return guest_ok();
}
