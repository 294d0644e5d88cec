// Shows: a sleep that a handler breaks off tells what is left of it, or EFAULT where that has no place; the handler runs once each time.
// Breaks if: the runtime, which has the rest told to itself first, takes a place that cannot be written for one that was.
#include "guest.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>

enum { ROUNDS = 10 };

static volatile sig_atomic_t rings;

static void ring(int signal)
{
    (void)signal;
    rings++;
}

/* A long sleep by number: the C library looks at nothing itself. The alarm rings until the sleep has begun. */
static void broken_off(int which, void *rest, int error)
{
    struct timespec minute = { 60, 0 };
    struct itimerval soon = { { 0, 2000 }, { 0, 2000 } }, never = { { 0, 0 }, { 0, 0 } };
    int before = rings;

    ZERO(setitimer(ITIMER_REAL, &soon, NULL));
    if (which == 0)
        FAILS(syscall(SYS_nanosleep, &minute, rest), error);
    else
        FAILS(syscall(SYS_clock_nanosleep, which == 1 ? CLOCK_MONOTONIC : CLOCK_REALTIME, 0L, &minute, rest), error);
    ZERO(setitimer(ITIMER_REAL, &never, NULL));
    CHECK(rings > before);
}

int main(void)
{
    void *hole = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct sigaction action = { .sa_handler = ring };

    CHECK(hole != MAP_FAILED);
    ZERO(sigaction(SIGALRM, &action, NULL));
    for (int r = 0; r < ROUNDS; r++)
        for (int which = 0; which < 3; which++) {
            struct timespec rest = { 0, 0 };
            broken_off(which, &rest, EINTR);
            CHECK(rest.tv_sec > 0 && rest.tv_sec <= 59);
            broken_off(which, NULL, EINTR);
            broken_off(which, hole, EFAULT);
            broken_off(which, (void *)-4096, EFAULT);
        }
    return guest_ok();
}
