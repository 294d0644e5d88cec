// Shows: a thread that leaves the folder which the others are in (unshare) is in its own until it ends.
// Breaks if: a standby is made meanwhile, in which all threads are in one folder.
// kit: allow unprotected unshare costs the standby, and there is none while a thread is in a folder of its own
// kit: no-record a recording ends at unshare
#include "guest.h"
#include <sched.h>

enum { ROUNDS = 30 };

static void *run(void *arg)
{
    char *own = (char *)arg, here[PATH_MAX];

    CHECK(unshare(CLONE_FS) == 0);
    CHECK(chdir(own) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        CHECK(getcwd(here, sizeof here) == here && strcmp(here, own) == 0);
        guest_pause_us(1500);
    }
    return arg;
}

int main(void)
{
    char before[PATH_MAX], now[PATH_MAX], own[] = "/proc";

    CHECK(getcwd(before, sizeof before) == before && strcmp(before, own) != 0);
    for (int at = 0; at < 2; at++) {
        for (int r = 0; r < ROUNDS; r++)
            guest_pause_us(1500);
        pthread_t thread = guest_start(run, own);
        for (int r = 0; r < ROUNDS; r++) {
            CHECK(getcwd(now, sizeof now) == now && strcmp(now, before) == 0);
            guest_pause_us(1500);
        }
        guest_join(thread);
    }
    return guest_ok();
}
