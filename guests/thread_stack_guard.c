// Shows: a thread that needs more stack than it has asked for is ended by it, also where another thread had more before it; guards are as asked for.
// Breaks if: a slot's stack keeps the size of its last thread, or the guard that the attributes ask for is not there.
// kit: allow standby_lost what a child dies of its standby dies of as well
// kit: allow unprotected as above
// kit: no-record where a standby is lost before a child dies of its fault, the replay ends with that fault
#include "guest.h"

#include <signal.h>
#include <sys/wait.h>

enum { SMALL = 64 << 10, LARGE = 1 << 20, GUARD = 32 << 10, SIZES = 3 };

static void *nothing(void *arg)
{
    return arg;
}

/* Where the stack ends, by what libc says of it. */
static void *look(void *arg)
{
    pthread_attr_t own;
    void *base;
    size_t bytes, guard;

    ZERO(pthread_getattr_np(pthread_self(), &own));
    ZERO(pthread_attr_getstack(&own, &base, &bytes));
    ZERO(pthread_attr_getguardsize(&own, &guard));
    CHECK((char *)&own > (char *)base && (char *)&own < (char *)base + bytes);
    CHECK(bytes >= SMALL && bytes < LARGE);
    CHECK(guard == GUARD);
    ZERO(pthread_attr_destroy(&own));
    return arg;
}

static void *touch_below(void *arg)
{
    volatile char here = 0;

    *(&here - SMALL - guest_num(arg)) = 1;
    return arg;
}

int main(void)
{
    static const long beyond[SIZES] = {0, GUARD / 2, GUARD - 8192};
    pthread_attr_t small, large;
    pthread_t made;

    ZERO(pthread_attr_init(&small));
    ZERO(pthread_attr_setstacksize(&small, SMALL));
    ZERO(pthread_attr_setguardsize(&small, GUARD));
    ZERO(pthread_attr_init(&large));
    ZERO(pthread_attr_setstacksize(&large, LARGE));
    for (int i = 0; i < SIZES; i++) {
        ZERO(pthread_create(&made, &large, nothing, NULL));
        ZERO(pthread_join(made, NULL));
        ZERO(pthread_create(&made, &small, look, NULL));
        ZERO(pthread_join(made, NULL));
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            signal(SIGSEGV, SIG_DFL);
            ZERO(pthread_create(&made, &large, nothing, NULL));
            ZERO(pthread_join(made, NULL));
            ZERO(pthread_create(&made, &small, touch_below, guest_ptr(beyond[i])));
            ZERO(pthread_join(made, NULL));
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    }
    return guest_ok();
}
