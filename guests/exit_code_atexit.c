// Shows: exit() from a thread runs atexit handlers in reverse order, flushes stdout and gives its code.
// Breaks if: exit is raced by the standby, handlers run twice, or the code is lost on the way.
// kit: exit 7
#include "guest.h"

static void first(void) { puts("registered first"); fputs("ok\n", stdout); }
static void second(void) { puts("registered second"); }
static void by_status(int status, void *arg) { printf("status %d, argument %ld\n", status, guest_num(arg)); }

static void *run(void *arg)
{
    (void)arg;
    for (int i = 0; i < 80; i++)
        guest_pause_us(400);
    exit(7);
}

int main(void)
{
    CHECK(atexit(first) == 0);
    CHECK(atexit(second) == 0);
    CHECK(on_exit(by_status, guest_ptr(99)) == 0);
    guest_join(guest_start(run, NULL));
    return 1;
}
