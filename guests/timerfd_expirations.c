// Shows: timerfd: one-shot, periodic and absolute; reads return the number of expirations; never early.
// Breaks if: a read's expiration count is not logged, or a timer is armed a second time.
#include "guest.h"
#include <sys/timerfd.h>

enum { ROUNDS = 15 };

static uint64_t expirations(int fd)
{
    uint64_t n;

    CHECK(read(fd, &n, sizeof n) == sizeof n && n >= 1);
    return n;
}

int main(void)
{
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC), lazy = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    uint64_t n, ticks = 0;

    CHECK(fd >= 0 && lazy >= 0);
    FAILS(read(lazy, &n, sizeof n), EAGAIN);
    for (int r = 0; r < ROUNDS; r++) {
        struct itimerspec once = { { 0, 0 }, { 0, 500000 } }, every = { { 0, 300000 }, { 0, 300000 } }, left;
        int64_t start = guest_now_ns(CLOCK_MONOTONIC);
        CHECK(timerfd_settime(fd, 0, &once, NULL) == 0);
        RETURNS(expirations(fd), 1);
        CHECK(guest_now_ns(CLOCK_MONOTONIC) - start >= 500000);
        start = guest_now_ns(CLOCK_MONOTONIC);
        CHECK(timerfd_settime(fd, 0, &every, NULL) == 0);
        for (n = 0; n < 4; )
            n += expirations(fd);
        CHECK(guest_now_ns(CLOCK_MONOTONIC) - start >= 4 * 300000);
        CHECK(timerfd_gettime(fd, &left) == 0 && left.it_interval.tv_nsec == 300000);
        struct itimerspec at = { { 0, 0 }, guest_deadline(CLOCK_MONOTONIC, 400) };
        CHECK(timerfd_settime(fd, TFD_TIMER_ABSTIME, &at, NULL) == 0);
        RETURNS(expirations(fd), 1);
        CHECK(guest_now_ns(CLOCK_MONOTONIC) >= (int64_t)at.it_value.tv_sec * 1000000000 + at.it_value.tv_nsec);
        ticks += 6;
    }
    printf("at least %lu expirations\n", (unsigned long)ticks);
    return guest_ok();
}
