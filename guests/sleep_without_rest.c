// Shows: a sleep that comes to its end leaves nothing where the rest of an interrupted one would lie, and an interrupted one leaves its rest there.
// Breaks if: a sleep that the runtime has broken off for its own sake, and begun again, is noticed by that.
#include "guest.h"
#include <signal.h>
#include <sys/time.h>

enum { ROUNDS = 40 };

static void handler(int signal) { (void)signal; }

int main(void)
{
    struct sigaction action = { .sa_handler = handler };
    struct itimerval again = { { 0, 3000 }, { 0, 3000 } }, off = { { 0, 0 }, { 0, 0 } };
    struct timespec pause = { 0, 2000000 }, second = { 10, 0 };

    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        struct timespec rest = { -1, -1 };

        RETURNS(r % 2 ? nanosleep(&pause, &rest) : clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, &rest), 0);
        CHECK(rest.tv_sec == -1 && rest.tv_nsec == -1);
    }
    for (int r = 0; r < ROUNDS / 10; r++) {
        struct timespec rest = { -1, -1 };

        CHECK(setitimer(ITIMER_REAL, &again, NULL) == 0);
        FAILS(nanosleep(&second, &rest), EINTR);
        CHECK(setitimer(ITIMER_REAL, &off, NULL) == 0);
        CHECK(rest.tv_sec >= 0 && rest.tv_sec <= 10 && rest.tv_nsec >= 0);
    }
    return guest_ok();
}
