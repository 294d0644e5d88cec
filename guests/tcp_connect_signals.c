// Shows: connects that do not wait, a second and a third time on the same socket, while signals with SA_RESTART come all the time.
// Breaks if: a connect that a signal put off is answered as if it had begun before, or one in doubt as if it had not.
// kit: no-checkpoint it sets no SO_REUSEADDR, and the kernel keeps its port for a minute, as natively
#include "net.h"
#include <poll.h>
#include <signal.h>

enum { ROUNDS = 150 };

static volatile sig_atomic_t heard;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int done;

static int is_done(int set)
{
    ZERO(pthread_mutex_lock(&lock));
    int now = done |= set;
    ZERO(pthread_mutex_unlock(&lock));
    return now;
}

static void hear(int number)
{
    heard += number == SIGUSR1;
}

static void *disturb(void *main_thread)
{
    while (!is_done(0)) {
        ZERO(pthread_kill(*(pthread_t *)main_thread, SIGUSR1));
        guest_pause_us(150);
    }
    return NULL;
}

static int finish(int fd)
{
    struct pollfd p = { fd, POLLOUT, 0 };
    socklen_t length = sizeof(int);
    int error = -1, ready;

    while ((ready = poll(&p, 1, -1)) < 0)
        CHECK(errno == EINTR);
    CHECK(ready == 1);
    CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0);
    return error;
}

int main(void)
{
    struct sigaction action = { .sa_handler = hear, .sa_flags = SA_RESTART };
    struct sockaddr_in address, gone;
    pthread_t self = pthread_self();
    int listener = net_bound(SOCK_STREAM, &address), dead = net_bound(SOCK_STREAM, &gone);

    CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && listen(listener, 8) == 0);
    pthread_t other = guest_start(disturb, &self);
    for (int r = 0; r < ROUNDS; r++) {
        const struct sockaddr *to = (const struct sockaddr *)&address;
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        CHECK(fd >= 0);
        FAILS(connect(fd, to, sizeof address), EINPROGRESS);
        CHECK(finish(fd) == 0);
        /* The first one after completion may say 0. */
        if (connect(fd, to, sizeof address) != 0)
            CHECK(errno == EISCONN);
        FAILS(connect(fd, to, sizeof address), EISCONN);
        FAILS(connect(fd, to, sizeof address), EISCONN);
        int accepted = accept(listener, NULL, NULL);
        CHECK(accepted >= 0 && close(accepted) == 0 && close(fd) == 0);
        /* One that waits, and is refused; one that waits, and is not. */
        fd = socket(AF_INET, SOCK_STREAM, 0);
        FAILS(connect(fd, (const struct sockaddr *)&gone, sizeof gone), ECONNREFUSED);
        CHECK(connect(fd, to, sizeof address) == 0);
        FAILS(connect(fd, to, sizeof address), EISCONN);
        accepted = accept(listener, NULL, NULL);
        CHECK(accepted >= 0 && close(accepted) == 0 && close(fd) == 0);
    }
    /* Where both processors are busy, all rounds may be over before the other thread runs for the first time. */
    while (heard == 0)
        guest_pause_us(150);
    is_done(1);
    guest_join(other);
    CHECK(heard > 0 && close(listener) == 0 && close(dead) == 0);
    return guest_ok();
}
