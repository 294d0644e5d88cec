// Shows: one thread changes the ids of all, by a signal of libc's own to each, while others start and end threads.
// Breaks if: a thread that waits for libc's list of stacks inside pthread_create does not answer: who holds it waits for that.
// kit: allow unprotected a copy cannot find the place in pthread_create at which such a signal was handled
// kit: no-kill a standby in which threads are being made while ids change does not come to its log's end yet
// kit: no-record the recording ends at the first such signal, and says so
#include "guest.h"

enum { STARTERS = 3, CHANGES = 150 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int done;

static int is_done(void)
{
    CHECK(pthread_mutex_lock(&lock) == 0);
    int now = done;
    CHECK(pthread_mutex_unlock(&lock) == 0);
    return now;
}

static void *nothing(void *arg) { return arg; }

static void *start(void *arg)
{
    long rounds = 0;
    while (!is_done()) {
        pthread_t t = guest_start(nothing, guest_ptr(rounds));
        CHECK(guest_num(guest_join(t)) == rounds);
        rounds++;
    }
    return arg;
}

int main(void)
{
    pthread_t t[STARTERS];

    for (int i = 0; i < STARTERS; i++)
        t[i] = guest_start(start, NULL);
    for (int i = 0; i < CHANGES; i++) {
        CHECK(i % 2 ? setegid(getegid()) == 0 : seteuid(geteuid()) == 0);
        CHECK(i % 3 || setresgid((gid_t)-1, getegid(), (gid_t)-1) == 0);
    }
    CHECK(pthread_mutex_lock(&lock) == 0);
    done = 1;
    CHECK(pthread_mutex_unlock(&lock) == 0);
    for (int i = 0; i < STARTERS; i++)
        guest_join(t[i]);
    return guest_ok();
}
