// Shows: what is done a second time answers with an error each time: descriptors, registrations, timers, names, sockets, waits.
// Breaks if: such a call in doubt is made again, and its error is taken for the success of the first attempt.
#include "guest.h"
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>

enum { ROUNDS = 60, AGAIN = 6 };

int main(void)
{
    struct epoll_event event = { .events = EPOLLIN };
    struct sockaddr_in any = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    struct sigevent nothing = { .sigev_notify = SIGEV_NONE };

    guest_scratch();
    struct guest_name file = guest_path("file"), link_name = guest_path("link"), folder = guest_path("folder");
    int epoll = epoll_create1(EPOLL_CLOEXEC), kept = open(file.s, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(epoll >= 0 && kept >= 0);
    for (int r = 0; r < ROUNDS; r++) {
        int ends[2], ends_of[2];
        CHECK(pipe2(ends, O_CLOEXEC) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, ends_of) == 0);
        CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event) == 0);
        for (int again = 0; again < AGAIN; again++)
            FAILS(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event), EEXIST);
        CHECK(epoll_ctl(epoll, EPOLL_CTL_DEL, ends[0], NULL) == 0);
        int bound = socket(AF_INET, SOCK_STREAM, 0);
        socklen_t size = sizeof any;
        any.sin_port = 0;
        CHECK(bound >= 0 && bind(bound, (struct sockaddr *)&any, sizeof any) == 0 && listen(bound, 1) == 0);
        CHECK(getsockname(bound, (struct sockaddr *)&any, &size) == 0);
        CHECK(close(ends_of[1]) == 0 && mkdir(folder.s, 0700) == 0 && link(file.s, link_name.s) == 0);
        for (int again = 0; again < AGAIN; again++) {
            FAILS(epoll_ctl(epoll, EPOLL_CTL_DEL, ends[0], NULL), ENOENT);
            FAILS(epoll_ctl(epoll, EPOLL_CTL_MOD, ends[0], &event), ENOENT);
            FAILS(close(ends_of[1]), EBADF);
            FAILS(bind(bound, (struct sockaddr *)&any, sizeof any), EINVAL);
            FAILS(mkdir(folder.s, 0700), EEXIST);
            FAILS(link(file.s, link_name.s), EEXIST);
            FAILS(symlink("x", link_name.s), EEXIST);
            FAILS(open(file.s, O_CREAT | O_EXCL | O_RDWR, 0600), EEXIST);
            FAILS(shutdown(bound + 100, SHUT_WR), EBADF);
            FAILS(waitpid(-1, NULL, 0), ECHILD);
        }
        CHECK(unlink(link_name.s) == 0 && rmdir(folder.s) == 0);
        timer_t timer;
        CHECK(timer_create(CLOCK_MONOTONIC, &nothing, &timer) == 0 && timer_delete(timer) == 0);
        int other = open(file.s, O_RDWR | O_CLOEXEC);
        CHECK(other >= 0 && flock(kept, LOCK_EX) == 0);
        CHECK(fsetxattr(kept, "user.guest", "x", 1, XATTR_CREATE) == 0 && fremovexattr(kept, "user.guest") == 0);
        for (int again = 0; again < AGAIN; again++) {
            FAILS(unlink(link_name.s), ENOENT);
            FAILS(rmdir(folder.s), ENOENT);
            FAILS(rename(link_name.s, folder.s), ENOENT);
            FAILS(fremovexattr(kept, "user.guest"), ENODATA);
            FAILS(flock(other, LOCK_EX | LOCK_NB), EWOULDBLOCK);
        }
        CHECK(flock(kept, LOCK_UN) == 0 && close(other) == 0 && close(bound) == 0 && close(ends_of[0]) == 0);
        CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
    }
    CHECK(close(kept) == 0 && close(epoll) == 0 && unlink(file.s) == 0);
    guest_scratch_end();
    return guest_ok();
}
