// Shows: connections made by one thread, accepted by another that sends a number and closes, in strict turns; the numbers of
//        descriptors come again at once.
// Breaks if: a connect, accept or close in doubt is made again on what another thread has opened since.
#include "net.h"
#include <sys/un.h>

enum { PAIRS = 4, ROUNDS = 500 };

struct door {
    int listener;
    struct sockaddr_un name;
};

static void *serve(void *arg)
{
    struct door *d = (struct door *)arg;

    for (uint64_t n = 0; n < ROUNDS; n++) {
        int fd = accept4(d->listener, NULL, NULL, SOCK_CLOEXEC);
        CHECK(fd >= 0);
        guest_write_all(fd, &n, sizeof n);
        CHECK(close(fd) == 0);
    }
    return NULL;
}

static void *call(void *arg)
{
    struct door *d = (struct door *)arg;
    uint64_t got;

    for (uint64_t n = 0; n < ROUNDS; n++) {
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&d->name, sizeof d->name) == 0);
        guest_read_all(fd, &got, sizeof got);
        CHECK(got == n && read(fd, &got, 1) == 0);
        CHECK(close(fd) == 0);
    }
    return NULL;
}

int main(void)
{
    struct door doors[PAIRS];
    pthread_t threads[2 * PAIRS];
    int lowest = dup(0);

    CHECK(lowest >= 0 && close(lowest) == 0);
    guest_scratch();
    for (int i = 0; i < PAIRS; i++) {
        struct door *d = &doors[i];
        memset(&d->name, 0, sizeof d->name);
        d->name.sun_family = AF_UNIX;
        CHECK(snprintf(d->name.sun_path, sizeof d->name.sun_path, "%s/%d", guest_scratch_dir, i) < (int)sizeof d->name.sun_path);
        d->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        CHECK(d->listener >= 0 && bind(d->listener, (struct sockaddr *)&d->name, sizeof d->name) == 0);
        CHECK(listen(d->listener, 4) == 0);
    }
    for (int i = 0; i < PAIRS; i++) {
        threads[2 * i] = guest_start(serve, &doors[i]);
        threads[2 * i + 1] = guest_start(call, &doors[i]);
    }
    for (int i = 0; i < 2 * PAIRS; i++)
        guest_join(threads[i]);
    for (int i = 0; i < PAIRS; i++)
        CHECK(close(doors[i].listener) == 0 && unlink(doors[i].name.sun_path) == 0);
    RETURNS(dup(0), lowest); /* nothing is left open */
    guest_scratch_end();
    printf("%d pairs, %d rounds\n", PAIRS, ROUNDS);
    return guest_ok();
}
