// Shows: a thread learns of its stack where it lies and that a guard page protects it.
// Breaks if: libc is told that the runtime's stack is one of the guest's own: run-time libraries give up without a guard.
#include "guest.h"

enum { ROUNDS = 60 };

static void *run(void *arg)
{
    pthread_attr_t about;
    size_t guard, bytes;
    void *base;
    char here;

    ZERO(pthread_getattr_np(pthread_self(), &about));
    ZERO(pthread_attr_getguardsize(&about, &guard));
    ZERO(pthread_attr_getstack(&about, &base, &bytes));
    CHECK(guard > 0);
    CHECK(&here >= (char *)base && &here < (char *)base + bytes);
    ZERO(pthread_attr_destroy(&about));
    guest_pause_us(500);
    return arg;
}

int main(void)
{
    for (int r = 0; r < ROUNDS; r++)
        guest_join(guest_start(run, NULL));
    return guest_ok();
}
