// Shows: poll and ppoll: readiness, timeouts, POLLHUP, POLLNVAL, ignored negative descriptors, a signal in ppoll.
// Breaks if: revents of some entries are not logged, or a timeout's result is decided by the standby's clock.
#include "guest.h"
#include <poll.h>
#include <signal.h>

enum { ROUNDS = 40 };

static volatile sig_atomic_t caught;
static int a[2], b[2];

static void handler(int signal)
{
    (void)signal;
    caught++;
}

static void *writer(void *arg)
{
    (void)arg;
    for (int r = 0; r < ROUNDS; r++) {
        guest_write_all(r % 2 ? a[1] : b[1], "x", 1);
        guest_pause_us(700);
    }
    return NULL;
}

int main(void)
{
    struct sigaction action = { .sa_handler = handler };
    sigset_t block, open_mask;
    int hits[2] = { 0, 0 }, gone[2];
    char c;

    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(sigemptyset(&block) == 0 && sigaddset(&block, SIGUSR1) == 0);
    CHECK(sigprocmask(SIG_BLOCK, &block, &open_mask) == 0);
    CHECK(pipe(a) == 0 && pipe(b) == 0 && pipe(gone) == 0 && close(gone[1]) == 0);
    pthread_t t = guest_start(writer, NULL);
    for (int r = 0; r < ROUNDS; r++) {
        struct pollfd p[3] = { { a[0], POLLIN, 0 }, { b[0], POLLIN, 0 }, { -1, POLLIN, 7 } };
        CHECK(poll(p, 3, -1) >= 1 && p[2].revents == 0);
        for (int i = 0; i < 2; i++) {
            if (p[i].revents & POLLIN) {
                guest_read_all(p[i].fd, &c, 1);
                hits[i]++;
            }
        }
        if (hits[0] + hits[1] == ROUNDS)
            break;
    }
    guest_join(t);
    for (int r = 0; r < 10; r++) {
        struct pollfd p[2] = { { gone[0], POLLIN, 0 }, { 999, POLLIN, 0 } };
        struct timespec soon = { 0, 300000 };
        CHECK(poll(p, 2, -1) == 2 && p[0].revents == POLLHUP && p[1].revents == POLLNVAL);
        p[0].fd = a[0];
        int64_t start = guest_now_ns(CLOCK_MONOTONIC);
        CHECK(poll(p, 1, 1) == 0 && ppoll(p, 1, &soon, NULL) == 0);
        CHECK(guest_now_ns(CLOCK_MONOTONIC) - start >= 1300000);
        CHECK(raise(SIGUSR1) == 0);
        FAILS(ppoll(p, 1, NULL, &open_mask), EINTR);
        CHECK(caught == r + 1);
    }
    printf("hits %d %d, caught %d\n", hits[0], hits[1], (int)caught);
    return guest_ok();
}
