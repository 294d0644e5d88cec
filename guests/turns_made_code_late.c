// Shows: a program with several threads that makes code: its standby is made anew for threads that take turns.
// Breaks if: that is tried without a new standby, or never.
// kit: varies
// kit: allow unprotected turns begin with a new standby
// kit: stale a race, and beside a recording nobody takes turns
// kit: serial one thread at a time: its threads do to each other what no lock orders
// kit: races its threads do to each other what no door orders
#include "made_code.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *nothing(void *arg)
{
    ZERO(pthread_mutex_lock(&lock));
    ZERO(pthread_mutex_unlock(&lock));
    return arg;
}

int main(void)
{
    ZERO(pthread_mutex_lock(&lock));
    pthread_t other = guest_start(nothing, NULL);
    make_code();
    /* What is raced for in these moments would be raced for without turns. */
    for (int i = 0; i < 200; i++)
        guest_pause_us(1000);
    ZERO(pthread_mutex_unlock(&lock));
    guest_join(other);
    run_threads();
    printf("counted %ld\n", counter);
    return guest_ok();
}
