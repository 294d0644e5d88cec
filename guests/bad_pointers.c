// Shows: small buffers, and pointers that lead nowhere, in calls about the process and its sockets: the kernel's own errors.
// Breaks if: the runtime looks at the caller's memory before the kernel does, or asks for more room than the kernel.
#include "guest.h"
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/times.h>
#include <sys/uio.h>
#include <sys/utsname.h>

enum { ROUNDS = 20 };

/* By number: the C library looks at some pointers itself. */
#define BAD(number, ...) FAILS(syscall(number, __VA_ARGS__), EFAULT)

int main(void)
{
    char *hole = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int pair[2], own[2], set = epoll_create1(EPOLL_CLOEXEC);
    char byte = 'x', name[16] = "";
    unsigned long processors[16];

    CHECK(hole != MAP_FAILED && set >= 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0 && pipe2(own, O_CLOEXEC) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        char *places[] = { NULL, hole, (char *)0x7ffffffff000, (char *)-4096 };
        for (int i = 0; i < 4; i++) {
            char *bad = places[i];
            socklen_t len = 16;

            BAD(SYS_getsockname, pair[0], &byte, NULL);
            BAD(SYS_getsockname, pair[0], bad, &len);
            BAD(SYS_getsockopt, pair[0], SOL_SOCKET, SO_TYPE, bad, &len);
            BAD(SYS_getsockopt, pair[0], SOL_SOCKET, SO_TYPE, &len, bad);
            BAD(SYS_setsockopt, pair[0], SOL_SOCKET, SO_RCVBUF, bad, 4);
            BAD(SYS_write, own[1], bad, 1);
            BAD(SYS_writev, own[1], bad, 1);
            BAD(SYS_sendto, pair[0], bad, 1, 0, NULL, 0);
            BAD(SYS_sendmsg, pair[0], bad, 0);
            BAD(SYS_recvmsg, pair[0], bad, MSG_DONTWAIT);
            BAD(SYS_epoll_ctl, set, EPOLL_CTL_ADD, own[0], bad);
            BAD(SYS_poll, bad, 1, 0);
            BAD(SYS_openat, AT_FDCWD, bad, O_RDONLY, 0);
            BAD(SYS_newfstatat, AT_FDCWD, bad, &processors, 0);
            BAD(SYS_fstat, own[0], bad);
            BAD(SYS_readlink, "/proc/self/exe", bad, 16);
            BAD(SYS_unlink, bad);
            BAD(SYS_pipe2, bad, O_CLOEXEC);
            BAD(SYS_uname, bad);
            BAD(SYS_getrusage, RUSAGE_SELF, bad);
            BAD(SYS_prctl, PR_SET_NAME, bad, 0, 0, 0);
            BAD(SYS_prctl, PR_GET_NAME, bad, 0, 0, 0);
            BAD(SYS_sched_getaffinity, 0, sizeof processors, bad);
            if (bad) {
                BAD(SYS_rt_sigprocmask, SIG_BLOCK, bad, NULL, 8);
                BAD(SYS_nanosleep, bad, NULL);
                BAD(SYS_getrandom, bad, 16, 0);
            }
        }
        /* As large as the kernel wants it, which is less than the set that C libraries have. */
        long least = 0;
        for (size_t bytes = 8; bytes <= sizeof processors && !least; bytes += 8)
            if (syscall(SYS_sched_getaffinity, 0, bytes, processors) > 0)
                least = (long)bytes;
        CHECK(least > 0);
        cpu_set_t wide;
        CHECK(sched_getaffinity(0, sizeof wide, &wide) == 0 && memcmp(&wide, processors, (size_t)least) == 0);
        FAILS(syscall(SYS_sched_getaffinity, 0, 4, processors), EINVAL);
        CHECK(prctl(PR_GET_NAME, name) == 0 && name[0] == 'b');
        printf("%ld\n", least);
        guest_pause_us(1000);
    }
    CHECK(mlockall(MCL_CURRENT | MCL_FUTURE) == 0 || errno == ENOMEM || errno == EPERM);
    CHECK(munlockall() == 0);
    return guest_ok();
}
