// Shows: a server that answers with a header (MSG_MORE) and a file by sendfile, blocking and not, with ranges, for one connection after another.
// Breaks if: a part of a file that a dead primary had sent is sent again, or the offset that the program keeps is wrong.
// kit: no-checkpoint it sets no SO_REUSEADDR, and the kernel keeps its port for a minute, as natively
#include "net.h"
#include <poll.h>
#include <sys/sendfile.h>

enum { ROUNDS = 24, SIZE = 300000 };

static unsigned char content[SIZE];
static struct sockaddr_in address;

static void *client(void *arg)
{
    static unsigned char back[SIZE];

    (void)arg;
    for (int r = 0; r < ROUNDS; r++) {
        int fd = net_connect(&address);
        long want[2] = { r * 1000, SIZE - r * 5000 - r * 1000 }, told[2];
        char more;
        guest_write_all(fd, want, sizeof want);
        guest_read_all(fd, told, sizeof told);
        CHECK(told[0] == want[0] && told[1] == want[1]);
        guest_read_all(fd, back, (size_t)want[1]);
        CHECK(memcmp(back, content + want[0], (size_t)want[1]) == 0);
        CHECK(read(fd, &more, 1) == 0 && close(fd) == 0);
        guest_pause_us(500);
    }
    return NULL;
}

int main(void)
{
    int listener = net_bound(SOCK_STREAM, &address);
    long sent = 0;

    guest_scratch();
    struct guest_name name = guest_path("content");
    int file = open(name.s, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    guest_fill(content, SIZE, 7);
    CHECK(file >= 0);
    guest_write_all(file, content, SIZE);
    CHECK(listen(listener, 4) == 0);
    pthread_t t = guest_start(client, NULL);
    for (int r = 0; r < ROUNDS; r++) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | (r % 2 ? SOCK_NONBLOCK : 0));
        struct pollfd ready = { fd, POLLIN, 0 };
        long want[2];
        CHECK(fd >= 0 && poll(&ready, 1, -1) == 1);
        guest_read_all(fd, want, sizeof want);
        CHECK(send(fd, want, sizeof want, MSG_MORE) == sizeof want);
        off_t at = want[0], end = at + want[1];
        if (r % 3 == 0)
            CHECK(lseek(file, at, SEEK_SET) == at);
        while (at < end) {
            off_t before = at;
            ssize_t n = r % 3 == 0 ? sendfile(fd, file, NULL, (size_t)(end - at)) : sendfile(fd, file, &at, (size_t)(end - at));
            if (n < 0) {
                CHECK(errno == EAGAIN && r % 2);
                ready = (struct pollfd){ fd, POLLOUT, 0 };
                CHECK(poll(&ready, 1, -1) == 1);
                continue;
            }
            CHECK(n > 0);
            if (r % 3 == 0)
                at += n;
            CHECK(at == before + n);
            sent += n;
        }
        if (r % 3 == 0)
            CHECK(lseek(file, 0, SEEK_CUR) == end);
        CHECK(close(fd) == 0);
    }
    guest_join(t);
    CHECK(close(listener) == 0 && close(file) == 0 && unlink(name.s) == 0);
    guest_scratch_end();
    printf("sent %ld\n", sent);
    return guest_ok();
}
