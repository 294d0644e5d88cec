// Shows: one thread changes the ids of all while others start and end threads: behind it every thread has them, old and new.
// Breaks if: a thread is left out, or waits for libc's list of threads while whoever holds that waits for it; or if what libc
//            does to each thread meets other threads in one copy than in another.
#include "guest.h"

enum { STARTERS = 3, CHANGES = 150 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int done;
static gid_t group;

static int is_done(void)
{
    CHECK(pthread_mutex_lock(&lock) == 0);
    int now = done;
    CHECK(getegid() == group);
    CHECK(pthread_mutex_unlock(&lock) == 0);
    return now;
}

static void *look(void *arg)
{
    is_done();
    return arg;
}

static void *start(void *arg)
{
    long rounds = 0;
    while (!is_done()) {
        pthread_t t = guest_start(look, guest_ptr(rounds));
        CHECK(guest_num(guest_join(t)) == rounds);
        rounds++;
    }
    return arg;
}

int main(void)
{
    pthread_t t[STARTERS];
    gid_t first = getegid();
    // Another group is for root alone.
    gid_t second = geteuid() == 0 ? 4711 : first;

    group = first;
    for (int i = 0; i < STARTERS; i++)
        t[i] = guest_start(start, NULL);
    for (int i = 0; i < CHANGES; i++) {
        gid_t next = i % 2 ? first : second;
        CHECK(i % 3 || seteuid(geteuid()) == 0);
        CHECK(pthread_mutex_lock(&lock) == 0);
        CHECK(i % 4 < 2 ? setegid(next) == 0 : setresgid((gid_t)-1, next, (gid_t)-1) == 0);
        group = next;
        CHECK(pthread_mutex_unlock(&lock) == 0);
    }
    CHECK(pthread_mutex_lock(&lock) == 0);
    done = 1;
    CHECK(pthread_mutex_unlock(&lock) == 0);
    for (int i = 0; i < STARTERS; i++)
        guest_join(t[i]);
    return guest_ok();
}
