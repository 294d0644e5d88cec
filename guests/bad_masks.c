// Shows: sets of signals that lead nowhere or have a wrong size, in every call that takes one: the kernel's own errors, and no wait.
// Breaks if: a call waits with another mask than the one that it cannot read, or keeps a mask that was only for its wait.
#include "guest.h"
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <time.h>

enum { ROUNDS = 20 };

static unsigned long blocked(void)
{
    unsigned long mask = 0;
    ZERO(syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &mask, 8L));
    return mask;
}

/* By number: the C library looks at some pointers itself, and always gives the right size. */
#define REFUSED(error, number, ...)                        \
    do {                                                   \
        FAILS(syscall(number, __VA_ARGS__), error);        \
        CHECK(blocked() == before);                        \
    } while (0)

int main(void)
{
    char *hole = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int own[2], set = epoll_create1(EPOLL_CLOEXEC);
    sigset_t usr1;

    CHECK(hole != MAP_FAILED && set >= 0 && pipe2(own, O_CLOEXEC) == 0);
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    ZERO(sigprocmask(SIG_BLOCK, &usr1, NULL));
    unsigned long before = blocked();
    unsigned long empty = 0;

    for (int r = 0; r < ROUNDS; r++) {
        char *places[] = { hole, (char *)0x7ffffffff000, (char *)-4096 };
        for (int i = 0; i < 3; i++) {
            char *bad = places[i];
            struct { void *mask; size_t size; } given = { bad, 8 };
            struct pollfd waits = { own[0], POLLIN, 0 };
            struct epoll_event event;
            struct timespec none = { 0, 1000 };

            REFUSED(EFAULT, SYS_rt_sigsuspend, bad, 8L);
            REFUSED(EFAULT, SYS_ppoll, &waits, 1L, NULL, bad, 8L);
            REFUSED(EFAULT, SYS_ppoll, &waits, 1L, bad, NULL, 8L);
            REFUSED(EFAULT, SYS_pselect6, 0L, NULL, NULL, NULL, NULL, &given);
            REFUSED(EFAULT, SYS_pselect6, 0L, NULL, NULL, NULL, NULL, bad);
            REFUSED(EFAULT, SYS_epoll_pwait, set, &event, 1L, -1L, bad, 8L);
            REFUSED(EFAULT, SYS_epoll_pwait2, set, &event, 1L, NULL, bad, 8L);
            REFUSED(EFAULT, SYS_epoll_pwait2, set, &event, 1L, bad, NULL, 8L);
            REFUSED(EFAULT, SYS_rt_sigtimedwait, bad, NULL, NULL, 8L);
            REFUSED(EFAULT, SYS_rt_sigtimedwait, &usr1, NULL, bad, 8L);
            REFUSED(EFAULT, SYS_rt_sigprocmask, SIG_SETMASK, bad, NULL, 8L);
            REFUSED(EFAULT, SYS_signalfd4, -1L, bad, 8L, 0L);
            REFUSED(EFAULT, SYS_rt_sigqueueinfo, getpid(), SIGUSR1, bad);
            (void)none;
        }
        long sizes[] = { 0, 4, 16, 128 };
        for (int i = 0; i < 4; i++) {
            long size = sizes[i];
            struct { void *mask; size_t size; } given = { &empty, (size_t)size };
            struct pollfd waits = { own[0], POLLIN, 0 };
            struct epoll_event event;

            REFUSED(EINVAL, SYS_rt_sigsuspend, &empty, size);
            REFUSED(EINVAL, SYS_rt_sigsuspend, hole, size);
            REFUSED(EINVAL, SYS_ppoll, &waits, 1L, NULL, &empty, size);
            REFUSED(EINVAL, SYS_pselect6, 0L, NULL, NULL, NULL, NULL, &given);
            REFUSED(EINVAL, SYS_epoll_pwait, set, &event, 1L, -1L, &empty, size);
            REFUSED(EINVAL, SYS_epoll_pwait2, set, &event, 1L, NULL, &empty, size);
            REFUSED(EINVAL, SYS_rt_sigtimedwait, &usr1, NULL, NULL, size);
            REFUSED(EINVAL, SYS_rt_sigprocmask, SIG_SETMASK, &empty, NULL, size);
            REFUSED(EINVAL, SYS_rt_sigaction, SIGUSR2, NULL, NULL, size);
            REFUSED(EINVAL, SYS_signalfd4, -1L, &usr1, size, 0L);
        }
        FAILS(syscall(SYS_rt_sigpending, &empty, 16L), EINVAL);
        usleep(1000);
    }
    puts("ok");
    return 0;
}
