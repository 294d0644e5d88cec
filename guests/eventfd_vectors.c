// Shows: an eventfd written by writev and read by readv in two pieces: every amount added is taken once.
// Breaks if: the log counts the bytes of such a transfer, or nothing, in place of the number that they are.
#include "guest.h"
#include <errno.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/uio.h>

enum { ROUNDS = 1500, LAST = 10000000 };

static int bell;

/* Kernels differ in whether a writev of several pieces is one write here. */
static ssize_t move(ssize_t (*call)(int, const struct iovec *, int), int count, uint64_t *value)
{
    size_t first = count == 1 ? sizeof *value : 3;
    struct iovec pieces[2] = {{value, first}, {(char *)value + first, sizeof *value - first}};
    ssize_t moved;
    do
        moved = call(bell, pieces, count);
    while (moved < 0 && errno == EINTR);
    return moved;
}

static void *taker(void *unused)
{
    (void)unused;
    uint64_t sum = 0;
    while (sum < LAST) {
        uint64_t taken = 0;
        CHECK(move(readv, 2, &taken) == sizeof taken && taken != 0);
        sum += taken;
    }
    CHECK(sum == LAST + (uint64_t)ROUNDS * (ROUNDS + 1) / 2);
    return NULL;
}

int main(void)
{
    bell = eventfd(0, 0);
    CHECK(bell >= 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, taker, NULL) == 0);
    for (uint64_t n = 1; n <= ROUNDS; n++) {
        uint64_t value = n;
        CHECK(move(writev, 1, &value) == sizeof value);
        if (n % 64 == 0)
            guest_pause_us(500);
    }
    uint64_t last = LAST;
    CHECK(move(writev, 1, &last) == sizeof last);
    CHECK(pthread_join(thread, NULL) == 0);
    return guest_ok();
}
