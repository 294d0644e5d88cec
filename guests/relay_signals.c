// Shows: numbers handed on in strict turns as the values of signals that are sent to one thread and waited for there.
// Breaks if: a signal in doubt is sent, or taken, a second time after its receiver has answered it.
#include "relay.h"
#include <signal.h>

enum { PAIRS = 6, ROUNDS = 1500 };

/* Which threads they are; known before the first number is handed on. */
static pthread_t threads[PAIRS][2];
static pthread_barrier_t known;
static __thread int is_known;

static void introduce(struct relay *r, int end)
{
    int rc;

    if (is_known)
        return;
    is_known = 1;
    threads[r->fd[0]][end] = pthread_self();
    rc = pthread_barrier_wait(&known);
    CHECK(rc == 0 || rc == PTHREAD_BARRIER_SERIAL_THREAD);
}

static void put(struct relay *r, int end, uint64_t number)
{
    introduce(r, end);
    ZERO(pthread_sigqueue(threads[r->fd[0]][!end], SIGRTMIN, (union sigval){ .sival_ptr = guest_ptr((long)number) }));
}

static uint64_t take(struct relay *r, int end)
{
    sigset_t wanted;
    siginfo_t info;

    introduce(r, end);
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGRTMIN);
    while (sigwaitinfo(&wanted, &info) != SIGRTMIN)
        CHECK(errno == EINTR);
    return (uint64_t)guest_num(info.si_value.sival_ptr);
}

int main(void)
{
    struct relay relays[PAIRS];
    sigset_t blocked;

    sigemptyset(&blocked);
    sigaddset(&blocked, SIGRTMIN);
    ZERO(pthread_sigmask(SIG_BLOCK, &blocked, NULL));
    ZERO(pthread_barrier_init(&known, NULL, 2 * PAIRS));
    for (int i = 0; i < PAIRS; i++)
        relays[i] = (struct relay){ .fd = { i, i }, .put = put, .take = take };
    relay_all(relays, PAIRS, ROUNDS);
    return guest_ok();
}
