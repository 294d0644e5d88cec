// Shows: a server that is nobody and allows itself no other process and no other file (limits of zero) serves its parent, and has none.
// Breaks if: no standby of it is made, or the limit is another for the program, or is lifted, in any copy.
// kit: tree
#include "asked_child.h"
#include <grp.h>
#include <sys/resource.h>
#include <sys/socket.h>

enum { ROUNDS = 150, NOBODY = 65533 };

static void *idle(void *arg) { return arg; }

static void serve(int talk)
{
    struct rlimit none = { 0, 0 }, now;
    uint64_t number;

    CHECK(setgroups(0, NULL) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
    CHECK(setrlimit(RLIMIT_NPROC, &none) == 0 && setrlimit(RLIMIT_NOFILE, &none) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        pthread_t thread;
        guest_read_all(talk, &number, sizeof number);
        CHECK(number == (uint64_t)r);
        CHECK(getrlimit(RLIMIT_NPROC, &now) == 0 && now.rlim_cur == 0 && now.rlim_max == 0);
        CHECK(getrlimit(RLIMIT_NOFILE, &now) == 0 && now.rlim_cur == 0 && now.rlim_max == 0);
        FAILS(open("/dev/null", O_RDONLY), EMFILE);
        FAILS(fork(), EAGAIN);
        RETURNS(pthread_create(&thread, NULL, idle, NULL), EAGAIN);
        number = guest_mix(number);
        guest_write_all(talk, &number, sizeof number);
    }
    now.rlim_max = 5;
    FAILS(setrlimit(RLIMIT_NPROC, &now), EPERM);
    _exit(0);
}

int main(void)
{
    int pair[2];

    if (geteuid() != 0) {
        puts("not root: there may be other processes of this user");
        return guest_ok();
    }
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(close(pair[0]) == 0);
        serve(pair[1]);
    }
    CHECK(close(pair[1]) == 0);
    ask_child(child, pair[0], ROUNDS);
    printf("rounds %d\n", ROUNDS);
    return guest_ok();
}
