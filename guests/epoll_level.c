// Shows: level-triggered epoll over many pipes: readiness stays until the bytes are taken; maxevents limits a call.
// Breaks if: the standby asks the shared epoll set itself, or the list of ready descriptors is not in the log.
#include "guest.h"
#include <sys/epoll.h>

enum { PIPES = 12, ROUNDS = 40 };

static int ends[PIPES][2];

static void *writer(void *arg)
{
    uint64_t x = 1;

    (void)arg;
    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 0; i < PIPES; i++) {
            x = guest_mix(x);
            guest_write_all(ends[x % PIPES][1], "abc", 3);
        }
        guest_pause_us(400);
    }
    for (int i = 0; i < PIPES; i++)
        CHECK(close(ends[i][1]) == 0);
    return NULL;
}

int main(void)
{
    struct epoll_event event, ready[5];
    long bytes[PIPES] = { 0 };
    int set = epoll_create1(EPOLL_CLOEXEC), open_ends = PIPES;

    CHECK(set >= 0);
    for (int i = 0; i < PIPES; i++) {
        CHECK(pipe(ends[i]) == 0);
        event.events = EPOLLIN;
        event.data.u64 = 1000u + (unsigned)i;
        CHECK(epoll_ctl(set, EPOLL_CTL_ADD, ends[i][0], &event) == 0);
    }
    FAILS(epoll_ctl(set, EPOLL_CTL_ADD, ends[0][0], &event), EEXIST);
    CHECK(epoll_wait(set, ready, 5, 0) == 0);
    pthread_t t = guest_start(writer, NULL);
    while (open_ends) {
        int n = epoll_wait(set, ready, 5, -1);
        CHECK(n > 0 && n <= 5);
        for (int k = 0; k < n; k++) {
            int i = (int)(ready[k].data.u64 - 1000);
            char back[2]; /* less than was written: it must be reported again */
            CHECK(i >= 0 && i < PIPES && (ready[k].events & (EPOLLIN | EPOLLHUP)));
            ssize_t got = read(ends[i][0], back, sizeof back);
            CHECK(got >= 0);
            bytes[i] += got;
            if (got == 0) {
                CHECK(epoll_ctl(set, EPOLL_CTL_DEL, ends[i][0], NULL) == 0);
                CHECK(close(ends[i][0]) == 0);
                open_ends--;
            }
        }
    }
    guest_join(t);
    CHECK(close(set) == 0);
    for (int i = 0; i < PIPES; i++)
        printf("pipe %d: %ld bytes\n", i, bytes[i]);
    return guest_ok();
}
