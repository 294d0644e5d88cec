// Shows: code that a program makes while its threads run makes system calls of its own, in threads that made all others by libc.
// Breaks if: dispatch is armed in the thread that maps the code alone, or after the others can execute it.
// kit: stale a race, and beside a recording nobody takes turns
// kit: serial one thread at a time: its threads do to each other what no lock orders
#include "calls_past_the_gate.h"

static caller make(void)
{
    static const unsigned char bytes[] = {CALLER_BYTES};
    unsigned char *page =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(page != MAP_FAILED);
    memcpy(page, bytes, sizeof bytes);
    return (caller)(void *)page;
}

int main(void)
{
    printf("sum %ld\n", run_callers(make));
    return guest_ok();
}
