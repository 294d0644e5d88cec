// Shows: a thread that computes for a second without any call, interrupted by SIGALRM, beside one that talks.
// Breaks if: the computing thread cannot be parked, or loses or repeats a step or a register where it was.
// kit: allow unprotected a thread interrupted while it computes costs the standby, and a new one is made
// kit: no-record a signal is delivered between two doors, where no replay finds it again: the recording ends there, and says so
#include "guest.h"
#include <signal.h>
#include <sys/time.h>

enum { STEPS = 120000000, ALARMS = 3 };

static volatile sig_atomic_t caught;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int finished;

static void handler(int signal)
{
    (void)signal;
    caught++;
}

static void *compute(void *arg)
{
    uint64_t x = (uint64_t)guest_num(arg);
    double y = 1.0;
    struct itimerval every = { { 0, 200000 }, { 0, 50000 } }, never = { { 0, 0 }, { 0, 0 } };
    sigset_t set;

    CHECK(sigemptyset(&set) == 0 && sigaddset(&set, SIGALRM) == 0);
    ZERO(pthread_sigmask(SIG_UNBLOCK, &set, NULL));
    CHECK(setitimer(ITIMER_REAL, &every, NULL) == 0);
    for (long i = 0; i < STEPS; i++) {
        x = guest_mix(x);
        y = y * 1.0000001 + (double)(x & 1);
    }
    while (caught < ALARMS)
        guest_pause_us(1000);
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    printf("steps %016lx %.6e\n", (unsigned long)x, y);
    ZERO(pthread_mutex_lock(&lock));
    finished = 1;
    ZERO(pthread_mutex_unlock(&lock));
    return NULL;
}

int main(void)
{
    struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART };
    sigset_t set;
    int done = 0;

    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    /* Every SIGALRM is for the thread that computes. */
    CHECK(sigemptyset(&set) == 0 && sigaddset(&set, SIGALRM) == 0);
    ZERO(pthread_sigmask(SIG_BLOCK, &set, NULL));
    pthread_t t = guest_start(compute, guest_ptr(5));
    while (!done) {
        guest_pause_us(1000);
        ZERO(pthread_mutex_lock(&lock));
        done = finished;
        ZERO(pthread_mutex_unlock(&lock));
    }
    guest_join(t);
    return guest_ok();
}
