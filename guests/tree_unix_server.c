// Shows: a child listens at a path and serves its parent: many connections, several open at a time, answers in order.
// Breaks if: a connection, or the listener, ends with the process that the server began in.
// kit: tree
#include "guest.h"
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

enum { CLIENTS = 80, AT_ONCE = 4, REQUESTS = 6 };

static struct sockaddr_un address = { .sun_family = AF_UNIX };

static void serve(int ready)
{
    struct pollfd fds[1 + AT_ONCE];
    int listener = socket(AF_UNIX, SOCK_STREAM, 0), open_now = 0;
    long served = 0;

    CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(listen(listener, AT_ONCE) == 0);
    guest_write_all(ready, "r", 1);
    fds[0] = (struct pollfd){ .fd = listener, .events = POLLIN };
    for (;;) {
        CHECK(poll(fds, 1 + (nfds_t)open_now, -1) > 0);
        for (int i = open_now; i > 0; i--) {
            long request[2];
            if (!fds[i].revents)
                continue;
            ssize_t n = recv(fds[i].fd, request, sizeof request, MSG_WAITALL);
            if (n == 0) {
                CHECK(close(fds[i].fd) == 0);
                fds[i] = fds[open_now--];
                continue;
            }
            CHECK(n == sizeof request);
            if (request[0] < 0) {
                guest_write_all(fds[i].fd, &served, sizeof served);
                _exit(5);
            }
            served++;
            request[1] = (long)guest_mix((uint64_t)(request[0] * 100 + request[1]));
            guest_write_all(fds[i].fd, request, sizeof request);
        }
        if (fds[0].revents && open_now < AT_ONCE) {
            int fd = accept(listener, NULL, NULL);
            CHECK(fd >= 0);
            fds[++open_now] = (struct pollfd){ .fd = fd, .events = POLLIN };
        }
    }
}

static void ask(int fd, long client, long n)
{
    long request[2] = { client, n };

    guest_write_all(fd, request, sizeof request);
    guest_read_all(fd, request, sizeof request);
    CHECK(request[0] == client && request[1] == (long)guest_mix((uint64_t)(client * 100 + n)));
}

static int connected(void)
{
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    return fd;
}

int main(void)
{
    int ready[2], status, fds[CLIENTS];
    long bye[2] = { -1, 0 }, served;
    char byte;

    guest_scratch();
    struct guest_name name = guest_path("s");
    CHECK(strlen(name.s) < sizeof address.sun_path);
    memcpy(address.sun_path, name.s, strlen(name.s) + 1);
    CHECK(pipe(ready) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        serve(ready[1]);
    guest_read_all(ready[0], &byte, 1);
    /* Client c opens at round c and asks once in each of the next rounds: up to three at a time. */
    for (int round = 0; round < 2 * CLIENTS + REQUESTS; round++) {
        for (int c = round / 2; c >= 0 && round - 2 * c < REQUESTS; c--) {
            if (c >= CLIENTS)
                continue;
            if (round == 2 * c)
                fds[c] = connected();
            ask(fds[c], c, round - 2 * c);
            if (round - 2 * c == REQUESTS - 1)
                CHECK(close(fds[c]) == 0);
        }
        guest_pause_us(2000);
    }
    fds[0] = connected();
    guest_write_all(fds[0], bye, sizeof bye);
    guest_read_all(fds[0], &served, sizeof served);
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 5);
    CHECK(unlink(name.s) == 0);
    guest_scratch_end();
    printf("served %ld\n", served);
    return guest_ok();
}
