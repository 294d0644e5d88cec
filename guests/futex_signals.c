// Shows: a wait on a futex of the program's own that a handler interrupts ends behind the handler, and with SA_RESTART goes on.
// Breaks if: EINTR comes before the handler has run, or a wake is broken off for a signal that waits.
// kit: allow unprotected no log has an event where such a handler runs
// kit: no-record a signal is delivered between two doors, where no replay finds it again: the recording ends there, and says so
#include "guest.h"
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/time.h>

static atomic_int word, caught;

static void handler(int signal)
{
    (void)signal;
    atomic_fetch_add(&caught, 1);
}

static void changing(int signal)
{
    handler(signal);
    atomic_store(&word, 1);
}

static long wait_word(const struct timespec *time_out)
{
    return syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, time_out, NULL, 0);
}

static void alarm_soon(void (*function)(int), int flags)
{
    struct sigaction action = { .sa_handler = function, .sa_flags = flags };
    /* Again and again: one that comes before the wait has begun ends nothing. */
    struct itimerval soon = { { 0, 4000 }, { 0, 4000 } };

    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
}

int main(void)
{
    struct timespec whole = { 10, 0 };

    alarm_soon(handler, 0);
    FAILS(wait_word(NULL), EINTR);
    CHECK(atomic_exchange(&caught, 0) > 0);
    /* One with a time-out is not begun again, whatever the flags. */
    alarm_soon(handler, SA_RESTART);
    FAILS(wait_word(&whole), EINTR);
    CHECK(atomic_exchange(&caught, 0) > 0);
    /* Begun again, it finds what the handler has changed. */
    alarm_soon(changing, SA_RESTART);
    FAILS(wait_word(NULL), EAGAIN);
    CHECK(atomic_load(&caught) > 0);
    return guest_ok();
}
