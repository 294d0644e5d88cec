// Shows: a child lowers limits, priority and the processors it may use; it sees them for ever, and its parent sees them from outside by its pid.
// Breaks if: the copy that a process goes on in has other limits or priority, or a question by pid is answered for somebody else.
// kit: tree
#include "guest.h"
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { ROUNDS = 220 };

static void check(pid_t who, int nice_value, rlim_t files, int processors)
{
    struct rlimit limit;
    cpu_set_t set;

    errno = 0;
    CHECK(getpriority(PRIO_PROCESS, (id_t)who) == nice_value && errno == 0);
    CHECK(prlimit(who, RLIMIT_NOFILE, NULL, &limit) == 0 && limit.rlim_cur == files);
    CHECK(sched_getaffinity(who, sizeof set, &set) == 0 && CPU_COUNT(&set) == processors);
}

int main(void)
{
    int go[2], done[2], status, before = getpriority(PRIO_PROCESS, 0), higher = before > 14 ? 19 : before + 5;
    struct rlimit limit;
    cpu_set_t set;

    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0 && sched_getaffinity(0, sizeof set, &set) == 0);
    const int processors = CPU_COUNT(&set);
    const rlim_t files = limit.rlim_cur, fewer = 60;
    CHECK(pipe(go) == 0 && pipe(done) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        int first = 0, r;
        while (!CPU_ISSET(first, &set))
            first++;
        CPU_ZERO(&set);
        CPU_SET(first, &set);
        limit.rlim_cur = fewer;
        CHECK(setpriority(PRIO_PROCESS, 0, higher) == 0 && setrlimit(RLIMIT_NOFILE, &limit) == 0);
        CHECK(sched_setaffinity(0, sizeof set, &set) == 0);
        while (read(go[0], &r, sizeof r) == sizeof r) {
            check(0, higher, fewer, 1);
            check(getpid(), higher, fewer, 1);
            FAILS(dup2(go[0], fewer), EBADF);
            guest_write_all(done[1], &r, sizeof r);
            if (r == ROUNDS)
                break;
        }
        _exit(0);
    }
    for (int r = 0, told; r <= ROUNDS; r++) {
        guest_write_all(go[1], &r, sizeof r);
        guest_read_all(done[0], &told, sizeof told);
        CHECK(told == r);
        check(0, before, files, processors);
        if (r < ROUNDS)
            check(pid, higher, fewer, 1);
        guest_pause_us(1500);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    printf("rounds %d\n", ROUNDS);
    return guest_ok();
}
