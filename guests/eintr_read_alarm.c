// Shows: SIGALRM during a blocking read: EINTR without SA_RESTART, transparent restart with it.
// Breaks if: the runtime restarts what must return EINTR, sleeps through a signal that came just before it
//            blocked, or forgets the interval timer at a failover (the read then blocks for ever).
#include "guest.h"
#include <signal.h>
#include <sys/time.h>

enum { ROUNDS = 25 };

static volatile sig_atomic_t alarms, write_at;
static int ends[2];

static void handler(int signal)
{
    (void)signal;
    if (++alarms == write_at && write(ends[1], "x", 1) != 1)
        _exit(1);
}

static void set(int flags, long us)
{
    struct sigaction action = { .sa_handler = handler, .sa_flags = flags };
    struct itimerval timer = { { 0, us }, { 0, us } };

    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
}

int main(void)
{
    int interrupted = 0, restarted = 0;
    char c;

    CHECK(pipe(ends) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        write_at = -1;
        alarms = 0;
        set(0, 400);
        FAILS(read(ends[0], &c, 1), EINTR); /* the timer repeats: one alarm falls into the read */
        interrupted++;
        alarms = 0;
        write_at = 3;
        set(SA_RESTART, 400);
        RETURNS(read(ends[0], &c, 1), 1);
        CHECK(c == 'x' && alarms >= 3);
        restarted++;
    }
    set(0, 0);
    printf("interrupted %d, restarted %d\n", interrupted, restarted);
    return guest_ok();
}
