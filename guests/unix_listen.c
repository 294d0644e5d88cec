// Shows: a listening unix socket with an automatic abstract name: accept4, peer credentials, many clients one after another.
// Breaks if: an accepted connection dies with the primary between accept and the log.
#include "guest.h"
#include <sys/socket.h>
#include <sys/un.h>

enum { CLIENTS = 3, ROUNDS = 64 };

static int listener;
static struct sockaddr_un address;
static socklen_t length = sizeof address;

static void *client(void *arg)
{
    for (int r = 0; r < ROUNDS; r++) {
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        long request = guest_num(arg) * 1000 + r, answer;
        CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&address, length) == 0);
        guest_write_all(fd, &request, sizeof request);
        guest_read_all(fd, &answer, sizeof answer);
        CHECK(answer == request * 3);
        CHECK(read(fd, &answer, 1) == 0);
        CHECK(close(fd) == 0);
        guest_pause_us(300);
    }
    return NULL;
}

int main(void)
{
    pthread_t t[CLIENTS];
    long sum = 0;

    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address.sun_family = AF_UNIX;
    /* With the family alone the kernel chooses a free abstract name. */
    CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&address, sizeof(sa_family_t)) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&address, &length) == 0 && address.sun_path[0] == 0);
    CHECK(listen(listener, 16) == 0);
    for (int i = 0; i < CLIENTS; i++)
        t[i] = guest_start(client, guest_ptr(i));
    for (int i = 0; i < CLIENTS * ROUNDS; i++) {
        struct ucred peer;
        socklen_t size = sizeof peer;
        long request;
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        CHECK(fd >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC);
        CHECK(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == getuid());
        guest_read_all(fd, &request, sizeof request);
        sum += request;
        request *= 3;
        guest_write_all(fd, &request, sizeof request);
        CHECK(close(fd) == 0);
    }
    for (int i = 0; i < CLIENTS; i++)
        guest_join(t[i]);
    CHECK(close(listener) == 0);
    printf("sum %ld\n", sum);
    return guest_ok();
}
