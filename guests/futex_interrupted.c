// Shows: waits on a futex of the program's own, by any command and with or without a time, that handlers interrupt: each ends
//        behind a handler, or goes on with SA_RESTART, and one for a while ends when its time is over.
// Breaks if: such a wait sleeps on where a copy has taken over, begins its time anew with each copy, or costs the standby.
// kit: allow unprotected it waits by futex calls of its own: turns begin with a new standby
// kit: no-record a signal is delivered between two doors, where no replay finds it again: the recording ends there, and says so
#include "guest.h"
#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif
#ifndef FUTEX_32
#define FUTEX_32 2
#endif
#define SYS_FUTEX_WAIT_OF_ITS_OWN 455

enum { THREADS = 4, ROUNDS = 40, MS = 1000000 };
/* By which call. The last two are young: WAIT where the kernel lacks them. */
enum { WAIT, WAIT_BITSET, WAITV, OWN_CALL };

static __thread volatile sig_atomic_t caught;
static __thread int *to_change;

static void handler(int signal)
{
    (void)signal;
    caught++;
    if (to_change)
        __atomic_store_n(to_change, 1, __ATOMIC_SEQ_CST);
}

static int is_absolute(int kind)
{
    return kind != WAIT;
}

static long wait_on(int *word, int kind, const struct timespec *time)
{
    struct { uint64_t value, address; uint32_t flags, reserved; } waiter = {
        0, (uintptr_t)word, FUTEX_32 | FUTEX_PRIVATE_FLAG, 0
    };

    switch (kind) {
    case WAITV:
        return syscall(SYS_futex_waitv, &waiter, 1, 0, time, CLOCK_MONOTONIC);
    case OWN_CALL:
        return syscall(SYS_FUTEX_WAIT_OF_ITS_OWN, word, 0L, ~0u, FUTEX_32 | FUTEX_PRIVATE_FLAG, time, CLOCK_MONOTONIC);
    default:
        return syscall(SYS_futex, word, (kind == WAIT ? FUTEX_WAIT : FUTEX_WAIT_BITSET) | FUTEX_PRIVATE_FLAG, 0, time, NULL,
                       FUTEX_BITSET_MATCH_ANY);
    }
}

/* What a wait of this kind is told for one that takes so long. */
static struct timespec time_for(int kind, long us)
{
    struct timespec whole = { us / 1000000, us % 1000000 * 1000 };

    return is_absolute(kind) ? guest_deadline(CLOCK_MONOTONIC, us) : whole;
}

static void *work(void *arg)
{
    int kind = (int)guest_num(arg), nothing = 1;
    struct sigevent event = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN + 1 };
    struct itimerspec every = { { 0, 3 * MS }, { 0, MS } }, never = { { 0, 0 }, { 0, 0 } };
    timer_t timer;
    int word = 0;

    if (wait_on(&nothing, kind, NULL) == -1 && errno == ENOSYS)
        kind = WAIT;
    event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        struct timespec whole = time_for(kind, 10 * 1000000L), shortly;
        CHECK(timer_settime(timer, 0, &every, NULL) == 0);
        if (kind == WAIT || kind == WAIT_BITSET) {
            /* With a time, until a handler comes, whatever its flags. The young ones go on. */
            int before = caught;
            FAILS(wait_on(&word, kind, &whole), EINTR);
            CHECK(caught > before);
        }
        /* Without one it goes on behind a handler with SA_RESTART, and finds what that has changed. */
        to_change = &word;
        FAILS(wait_on(&word, kind, NULL), EAGAIN);
        CHECK(word == 1);
        to_change = NULL;
        CHECK(timer_settime(timer, 0, &never, NULL) == 0);
        __atomic_store_n(&word, 0, __ATOMIC_SEQ_CST);
        /* For a while, and nobody comes. */
        int64_t until = guest_now_ns(CLOCK_MONOTONIC) + 2 * MS;
        shortly = time_for(kind, 2000);
        while (wait_on(&word, kind, &shortly) == -1 && errno == EINTR) {
        }
        CHECK(errno == ETIMEDOUT && guest_now_ns(CLOCK_MONOTONIC) >= until);
    }
    CHECK(timer_delete(timer) == 0);
    return arg;
}

int main(void)
{
    struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART };
    pthread_t threads[THREADS];

    CHECK(sigaction(SIGRTMIN + 1, &action, NULL) == 0);
    for (int t = 0; t < THREADS; t++)
        threads[t] = guest_start(work, guest_ptr(t));
    for (int t = 0; t < THREADS; t++)
        CHECK(guest_num(guest_join(threads[t])) == t);
    return guest_ok();
}
