// Shows: one epoll set with a signalfd, a timerfd, an eventfd, a pipe and a listener in it, as an event loop has them; each told by its pointer.
// Breaks if: a source of another kind is not armed again, or tells another one's pointer, in the promoted copy.
// kit: no-checkpoint it sets no SO_REUSEADDR, and the kernel keeps its port for a minute, as natively
#include "net.h"
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>

enum { ROUNDS = 80, KINDS = 5 };

struct source {
    int fd;
    long count;
};

static struct source sources[KINDS];
static struct sockaddr_in address;
static int pipe_in, event;
static pthread_barrier_t both;

static void *poke(void *arg)
{
    (void)arg;
    for (long r = 0; r < ROUNDS; r++) {
        uint64_t one = 1;
        CHECK(kill(getpid(), SIGUSR1) == 0);
        guest_write_all(event, &one, sizeof one);
        guest_write_all(pipe_in, &r, sizeof r);
        CHECK(close(net_connect(&address)) == 0);
        guest_pause_us(300);
        pthread_barrier_wait(&both);
    }
    return NULL;
}

int main(void)
{
    struct epoll_event events[KINDS];
    struct itimerspec soon = { { 0, 0 }, { 0, 200000 } };
    sigset_t set;
    int ends[2], epoll = epoll_create1(EPOLL_CLOEXEC);

    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    ZERO(pthread_sigmask(SIG_BLOCK, &set, NULL));
    ZERO(pthread_barrier_init(&both, NULL, 2));
    CHECK(epoll >= 0 && pipe2(ends, O_CLOEXEC) == 0);
    pipe_in = ends[1];
    sources[0].fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    sources[1].fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    sources[2].fd = event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    sources[3].fd = ends[0];
    sources[4].fd = net_bound(SOCK_STREAM, &address);
    CHECK(listen(sources[4].fd, 8) == 0);
    for (int i = 0; i < KINDS; i++) {
        struct epoll_event want = { .events = EPOLLIN | (i == 2 ? EPOLLET : 0), .data.ptr = &sources[i] };
        CHECK(sources[i].fd >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, sources[i].fd, &want) == 0);
    }
    pthread_t t = guest_start(poke, NULL);
    for (long r = 0; r < ROUNDS; r++) {
        CHECK(timerfd_settime(sources[1].fd, 0, &soon, NULL) == 0);
        while (sources[0].count <= r || sources[1].count <= r || sources[2].count <= r || sources[3].count <= r ||
               sources[4].count <= r) {
            int n = epoll_wait(epoll, events, KINDS, 10000);
            CHECK(n > 0);
            for (int i = 0; i < n; i++) {
                struct source *source = (struct source *)events[i].data.ptr;
                struct signalfd_siginfo info;
                uint64_t value;
                long number;
                switch (source - sources) {
                case 0:
                    CHECK(read(source->fd, &info, sizeof info) == sizeof info && info.ssi_signo == SIGUSR1);
                    break;
                case 1:
                case 2:
                    if (read(source->fd, &value, sizeof value) < 0) {
                        /* An edge that was told twice. */
                        CHECK(errno == EAGAIN && source == &sources[2]);
                        continue;
                    }
                    CHECK(value == 1);
                    break;
                case 3:
                    CHECK(read(source->fd, &number, sizeof number) == sizeof number && number == r);
                    break;
                default:
                    CHECK(close(accept4(source->fd, NULL, NULL, SOCK_CLOEXEC)) == 0);
                }
                source->count++;
            }
        }
        pthread_barrier_wait(&both);
    }
    guest_join(t);
    CHECK(epoll_wait(epoll, events, KINDS, 0) == 0);
    for (int i = 0; i < KINDS; i++)
        printf("%d: %ld\n", i, sources[i].count);
    return guest_ok();
}
