// Shows: select and pselect: three sets, timeouts, a signal in pselect, EBADF.
// Breaks if: the sets are filled from the standby's view of the shared table.
#include "guest.h"
#include <signal.h>
#include <sys/select.h>

enum { ROUNDS = 50 };

static volatile sig_atomic_t caught;

static void handler(int signal)
{
    (void)signal;
    caught++;
}

int main(void)
{
    struct sigaction action = { .sa_handler = handler };
    sigset_t block, open_mask;
    int ends[2], total = 0;
    char c;

    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(sigemptyset(&block) == 0 && sigaddset(&block, SIGUSR1) == 0);
    CHECK(sigprocmask(SIG_BLOCK, &block, &open_mask) == 0 && pipe(ends) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        fd_set in, out;
        struct timeval soon = { 0, 200 };
        struct timespec later = { 60, 0 };
        FD_ZERO(&in);
        FD_ZERO(&out);
        FD_SET(ends[0], &in);
        CHECK(select(ends[1] + 1, &in, &out, NULL, &soon) == 0 && !FD_ISSET(ends[0], &in));
        guest_write_all(ends[1], "x", 1);
        FD_SET(ends[0], &in);
        FD_SET(ends[1], &out);
        CHECK(select(ends[1] + 1, &in, &out, NULL, NULL) == 2);
        CHECK(FD_ISSET(ends[0], &in) && FD_ISSET(ends[1], &out));
        guest_read_all(ends[0], &c, 1);
        CHECK(raise(SIGUSR1) == 0 && caught == r);
        FAILS(pselect(ends[0] + 1, &in, NULL, NULL, &later, &open_mask), EINTR);
        CHECK(caught == r + 1);
        FD_ZERO(&in);
        FD_SET(60, &in); /* closed, yet within the table: beyond its size the kernel ignores a bit */
        FAILS(select(61, &in, NULL, NULL, NULL), EBADF);
        total += 2;
        guest_pause_us(200);
    }
    printf("ready %d, caught %d\n", total, (int)caught);
    return guest_ok();
}
