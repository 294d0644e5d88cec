// Shows: parent and child each wait with an epoll set of their own: the child for three pipes and a ticking timer, the parent for its answers.
// Breaks if: a registration that was made after the fork is lost in the copy, or belongs to the wrong process's descriptors.
// kit: tree
#include "guest.h"
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

enum { PIPES = 3, ROUNDS = 250 };

static void watch(int set, int fd, uint32_t tag)
{
    struct epoll_event event = { .events = EPOLLIN, .data = { .u32 = tag } };

    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
}

static void child(int in[PIPES][2], int out[PIPES][2])
{
    int set = epoll_create1(EPOLL_CLOEXEC), ticks = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC), open_now = PIPES;
    struct itimerspec every = { { 0, 3000000 }, { 0, 3000000 } };
    uint64_t ticked = 0;

    CHECK(set >= 0 && ticks >= 0 && timerfd_settime(ticks, 0, &every, NULL) == 0);
    for (uint32_t p = 0; p < PIPES; p++) {
        CHECK(close(in[p][1]) == 0 && close(out[p][0]) == 0);
        watch(set, in[p][0], p);
    }
    watch(set, ticks, PIPES);
    while (open_now > 0) {
        struct epoll_event events[PIPES + 1];
        int n = epoll_wait(set, events, PIPES + 1, -1);
        CHECK(n > 0);
        for (int i = 0; i < n; i++) {
            uint32_t p = events[i].data.u32;
            uint64_t value;
            if (p == PIPES) {
                CHECK(read(ticks, &value, sizeof value) == sizeof value && value > 0);
                ticked += value;
            } else if (read(in[p][0], &value, sizeof value) == sizeof value) {
                value = value * 10 + p;
                guest_write_all(out[p][1], &value, sizeof value);
            } else {
                CHECK(epoll_ctl(set, EPOLL_CTL_DEL, in[p][0], NULL) == 0);
                open_now--;
            }
        }
    }
    _exit(ticked > 0 ? 0 : 1);
}

int main(void)
{
    int down[PIPES][2], up[PIPES][2], status, set = epoll_create1(EPOLL_CLOEXEC);
    uint64_t sum = 0;

    CHECK(set >= 0);
    for (uint32_t p = 0; p < PIPES; p++)
        CHECK(pipe(down[p]) == 0 && pipe(up[p]) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        CHECK(close(set) == 0);
        child(down, up);
    }
    for (uint32_t p = 0; p < PIPES; p++) {
        CHECK(close(down[p][0]) == 0 && close(up[p][1]) == 0);
        watch(set, up[p][0], p);
    }
    for (uint64_t r = 0; r < ROUNDS; r++) {
        int answers = 0;
        for (uint64_t p = 0; p < PIPES; p++)
            guest_write_all(down[p][1], &r, sizeof r);
        while (answers < PIPES) {
            struct epoll_event events[PIPES];
            int n = epoll_wait(set, events, PIPES, -1);
            CHECK(n > 0);
            for (int i = 0; i < n; i++) {
                uint64_t value;
                guest_read_all(up[events[i].data.u32][0], &value, sizeof value);
                CHECK(value == r * 10 + events[i].data.u32);
                sum += value;
                answers++;
            }
        }
        guest_pause_us(1400);
    }
    for (uint32_t p = 0; p < PIPES; p++)
        CHECK(close(down[p][1]) == 0);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    printf("sum %llu\n", (unsigned long long)sum);
    return guest_ok();
}
