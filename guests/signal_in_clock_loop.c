// Shows: a program that waits for its handler's word by reading a clock, or the processor's counter, again and again, and makes
// no other call, hears of each signal.
// Breaks if: a signal that comes while the runtime reads the clock waits for another door.
// kit: allow unprotected a signal that is due in a thread that computes costs the standby
// kit: allow standby_lost the same
// kit: no-record the recording ends at a signal that is due in a thread that computes
#include "guest.h"
#include <signal.h>
#include <sys/time.h>
#include <time.h>
#include <x86intrin.h>

enum { SIGNALS = 60 };

static volatile sig_atomic_t heard;

static void handle(int signal)
{
    (void)signal;
    heard++;
}

int main(void)
{
    struct sigaction action = { .sa_handler = handle, .sa_flags = SA_RESTART };
    struct timespec now, start;
    struct timeval day;

    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    for (int n = 0; n < SIGNALS; n++) {
        struct itimerval once = { .it_value = { 0, 1000 + n * 37 } };
        CHECK(clock_gettime(CLOCK_MONOTONIC, &start) == 0);
        CHECK(setitimer(ITIMER_REAL, &once, NULL) == 0);
        unsigned long long first = __rdtsc();
        while (n % 4 == 1 && heard == n)
            CHECK(__rdtsc() - first < 100000000000ULL);
        while (heard == n) {
            if (n % 3 == 0)
                CHECK(gettimeofday(&day, NULL) == 0);
            CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
            CHECK(now.tv_sec - start.tv_sec < 20);
        }
    }
    CHECK(heard == SIGNALS);
    return guest_ok();
}
