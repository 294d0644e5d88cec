// Shows: a child that has shut itself up in a folder without /proc, and is nobody there, serves its parent: threads, files, pipes, events.
// Breaks if: no standby of such a child is made, or one that takes over there leaves a file or a descriptor of a call in doubt behind.
// kit: tree
#include "asked_child.h"
#include <grp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

enum { ROUNDS = 150, NOBODY = 65534 };

static int bell, lowest;

static void *adds(void *arg)
{
    uint64_t sum = 0, one;

    for (int r = 0; r < ROUNDS; r++) {
        CHECK(read(bell, &one, sizeof one) == sizeof one);
        sum += one;
    }
    *(uint64_t *)arg = sum;
    return NULL;
}

/* What leaves nothing behind: a new file, a pipe, a socket, each under the lowest number that is free. */
static void touch(int r)
{
    char name[32], got;
    int ends[2];

    snprintf(name, sizeof name, "/file-%d", r);
    int file = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    CHECK(file == lowest && write(file, "x", 1) == 1);
    CHECK(pipe(ends) == 0 && ends[0] == lowest + 1 && ends[1] == lowest + 2);
    CHECK(write(ends[1], "y", 1) == 1 && read(ends[0], &got, 1) == 1 && got == 'y');
    int twin = dup(file);
    CHECK(twin == lowest + 3 && lseek(twin, 0, SEEK_CUR) == 1);
    CHECK(close(twin) == 0 && close(ends[0]) == 0 && close(ends[1]) == 0 && close(file) == 0);
    CHECK(unlink(name) == 0);
}

static void serve(int talk)
{
    struct epoll_event event = { .events = EPOLLIN, .data.u64 = 7 };
    uint64_t sum, number, one = 1;
    int set = epoll_create1(0);

    bell = eventfd(0, EFD_SEMAPHORE);
    CHECK(set >= 0 && bell >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, talk, &event) == 0);
    lowest = bell + 1;
    pthread_t thread = guest_start(adds, &sum);
    for (int r = 0; r < ROUNDS; r++) {
        CHECK(epoll_wait(set, &event, 1, -1) == 1 && event.data.u64 == 7);
        guest_read_all(talk, &number, sizeof number);
        CHECK(number == (uint64_t)r && access("/etc/passwd", F_OK) != 0 && getuid() == NOBODY);
        touch(r);
        CHECK(write(bell, &one, sizeof one) == sizeof one);
        number = guest_mix(number);
        guest_write_all(talk, &number, sizeof number);
    }
    guest_join(thread);
    CHECK(sum == ROUNDS);
    _exit(0);
}

int main(void)
{
    int pair[2];

    if (geteuid() != 0) {
        puts("not root: nobody else may change his root");
        return guest_ok();
    }
    guest_scratch();
    struct guest_name jail = guest_path("jail");
    CHECK(mkdir(jail.s, 0755) == 0 && chmod(jail.s, 0777) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(close(pair[0]) == 0 && chdir(jail.s) == 0 && chroot(".") == 0 && chdir("/") == 0);
        CHECK(setgroups(0, NULL) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
        serve(pair[1]);
    }
    CHECK(close(pair[1]) == 0);
    ask_child(child, pair[0], ROUNDS);
    CHECK(rmdir(jail.s) == 0);
    guest_scratch_end();
    printf("rounds %d\n", ROUNDS);
    return guest_ok();
}
