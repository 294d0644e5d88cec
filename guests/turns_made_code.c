// Shows: a program that makes its code as it runs, before its first thread: its threads take turns from the beginning.
// Breaks if: turns begin with the second standby only, or one copy takes them from another event on than the other.
// kit: varies
// kit: stale a race, and beside a recording nobody takes turns
// kit: serial one thread at a time: its threads do to each other what no lock orders
// kit: races its threads do to each other what no door orders
#include "made_code.h"

int main(void)
{
    make_code();
    run_threads();
    printf("counted %ld\n", counter);
    return guest_ok();
}
