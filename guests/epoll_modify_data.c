// Shows: EPOLL_CTL_MOD changes the data word and the events of a registration; DEL and ADD again start anew; dup'd descriptors.
// Breaks if: the translation from the kernel's token to the guest's data keeps the old word, or mixes up generations.
#include "guest.h"
#include <sys/epoll.h>

enum { ROUNDS = 120 };

int main(void)
{
    int set = epoll_create1(0), ends[2];
    uint64_t last = 0;

    CHECK(set >= 0 && pipe(ends) == 0);
    struct epoll_event event = { .events = EPOLLIN, .data.u64 = 1 }, ready[4];
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event) == 0);
    guest_write_all(ends[1], "x", 1);
    for (uint64_t r = 0; r < ROUNDS; r++) {
        event.events = EPOLLIN;
        event.data.u64 = guest_mix(r); /* all 64 bits are the guest's */
        CHECK(epoll_ctl(set, EPOLL_CTL_MOD, ends[0], &event) == 0);
        CHECK(epoll_wait(set, ready, 4, -1) == 1 && ready[0].data.u64 == guest_mix(r));
        event.events = 0;
        CHECK(epoll_ctl(set, EPOLL_CTL_MOD, ends[0], &event) == 0);
        CHECK(epoll_wait(set, ready, 4, 0) == 0);
        CHECK(epoll_ctl(set, EPOLL_CTL_DEL, ends[0], NULL) == 0);
        FAILS(epoll_ctl(set, EPOLL_CTL_MOD, ends[0], &event), ENOENT);
        event.events = EPOLLIN;
        event.data.u64 = r;
        CHECK(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event) == 0);
        int copy = dup(ends[0]);
        event.data.u64 = r + 1000;
        CHECK(copy >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, copy, &event) == 0);
        CHECK(epoll_wait(set, ready, 4, -1) == 2);
        CHECK(ready[0].data.u64 + ready[1].data.u64 == 2 * r + 1000);
        /* Closing the copy does not remove it: the open file lives on. DEL first. */
        CHECK(epoll_ctl(set, EPOLL_CTL_DEL, copy, NULL) == 0 && close(copy) == 0);
        CHECK(epoll_wait(set, ready, 4, -1) == 1 && ready[0].data.u64 == r);
        last = ready[0].data.u64;
        if (r % 3 == 0)
            guest_pause_us(400);
    }
    printf("last %lu\n", (unsigned long)last);
    return guest_ok();
}
