// Shows: setrlimit(NOFILE): EMFILE at the limit and recovery; getrlimit, prlimit, getrusage, getpriority.
// Breaks if: the limit holds in one copy only, or descriptors of the runtime's own count against the guest's.
#include "guest.h"
#include <sys/resource.h>

enum { ROUNDS = 60, ROOM = 10 };

int main(void)
{
    struct rlimit before, now, tight;
    int highest = fcntl(1, F_DUPFD, 100), room = -1, fds[256];

    CHECK(highest >= 0 && close(highest) == 0);
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        struct rusage usage;
        tight = before;
        tight.rlim_cur = (rlim_t)highest + ROOM;
        CHECK(setrlimit(RLIMIT_NOFILE, &tight) == 0);
        int n = 0;
        while ((fds[n] = dup(1)) >= 0)
            CHECK(fds[n] < highest + ROOM && ++n < 256);
        CHECK(errno == EMFILE && n >= ROOM);
        /* As many as in the first round: nothing in the process takes or leaves numbers meanwhile. */
        CHECK(room < 0 || room == n);
        room = n;
        guest_pause_us(400);
        FAILS(open("/dev/null", O_RDONLY), EMFILE);
        while (n-- > 0)
            CHECK(close(fds[n]) == 0);
        CHECK(prlimit(0, RLIMIT_NOFILE, &before, &now) == 0 && now.rlim_cur == tight.rlim_cur);
        CHECK(getrlimit(RLIMIT_NOFILE, &now) == 0 && now.rlim_cur == before.rlim_cur);
        CHECK(getrusage(RUSAGE_SELF, &usage) == 0 && usage.ru_maxrss > 0);
        errno = 0;
        CHECK(getpriority(PRIO_PROCESS, 0) >= -20 && errno == 0);
    }
    printf("rounds %d\n", ROUNDS);
    return guest_ok();
}
