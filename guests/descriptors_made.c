// Shows: every call that makes a descriptor gives the lowest free number, round after round, and nothing is left over.
// Breaks if: a call that was done when the primary died is made again, and what the first attempt made stays open.
#include "net.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <signal.h>

enum { ROUNDS = 60, WAYS = 16 };

static struct guest_name file;
static int listener, lowest;
static struct sockaddr_in address;

/* Makes something, and gives back how many descriptors it is. */
static int make(int way)
{
    int pair[2] = { -1, -1 }, client;
    sigset_t set;

    switch (way) {
    case 0: CHECK(pipe(pair) == 0); break;
    case 1: CHECK(pipe2(pair, O_CLOEXEC | O_NONBLOCK) == 0); break;
    case 2: CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0); break;
    case 3: pair[0] = epoll_create1(0); break;
    case 4: pair[0] = eventfd(7, EFD_NONBLOCK); break;
    case 5: pair[0] = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC); break;
    case 6: pair[0] = memfd_create("made", 0); break;
    case 7: sigemptyset(&set); pair[0] = signalfd(-1, &set, 0); break;
    case 8: pair[0] = inotify_init1(IN_CLOEXEC); break;
    case 9: pair[0] = dup(listener); break;
    case 10: pair[0] = fcntl(listener, F_DUPFD, 0); break;
    case 11: pair[0] = fcntl(listener, F_DUPFD_CLOEXEC, lowest); break;
    case 12: pair[0] = socket(AF_INET, SOCK_DGRAM, 0); break;
    case 13: pair[0] = open(file.s, O_RDWR); break;
    case 14: pair[0] = dup2(listener, lowest); break;
    default:
        /* The client takes the lowest number, the connection the next. */
        client = net_connect(&address);
        CHECK(client == lowest);
        pair[0] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        CHECK(pair[0] == lowest + 1);
        CHECK(close(client) == 0 && close(pair[0]) == 0);
        return 2;
    }
    CHECK(pair[0] == lowest && (pair[1] == -1 || pair[1] == lowest + 1));
    if (way == 4) {
        eventfd_t n;
        CHECK(eventfd_read(pair[0], &n) == 0 && n == 7);
    }
    CHECK(close(pair[0]) == 0 && (pair[1] < 0 || close(pair[1]) == 0));
    return pair[1] < 0 ? 1 : 2;
}

int main(void)
{
    int made = 0;

    guest_scratch();
    file = guest_path("file");
    CHECK(close(open(file.s, O_RDWR | O_CREAT | O_EXCL, 0600)) == 0);
    listener = net_bound(SOCK_STREAM, &address);
    CHECK(listen(listener, 8) == 0);
    lowest = dup(0);
    CHECK(lowest >= 0 && close(lowest) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        for (int way = 0; way < WAYS; way++)
            made += make(way);
        guest_pause_us(100);
    }
    CHECK(close(listener) == 0 && unlink(file.s) == 0);
    guest_scratch_end();
    printf("made %d\n", made);
    return guest_ok();
}
