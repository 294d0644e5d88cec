// Shows: children exit, or die of signals, while their parent waits: waitpid for one, for any, with WNOHANG, wait3 and wait4.
// Breaks if: wait tells of a copy's death, misses a child's end, tells it twice, or shows another status.
// kit: tree
#include "guest.h"
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { ROUNDS = 20, CHILDREN = 4, STEPS = 10 };

/* Lives for some 20 ms, then ends as round and place say. */
static void child(int r, int c, int go)
{
    char byte;

    guest_read_all(go, &byte, 1);
    for (int s = 0; s < STEPS + 2 * c; s++)
        guest_pause_us(1500);
    if ((r + c) % 4 == 3)
        raise(r % 2 ? SIGTERM : SIGUSR1);
    _exit((r * CHILDREN + c) % 256);
}

static int wanted(int r, int c)
{
    if ((r + c) % 4 == 3)
        return r % 2 ? SIGTERM : SIGUSR1;
    return (r * CHILDREN + c) % 256 << 8;
}

static pid_t wait_in_some_way(int r, pid_t pid, int *status)
{
    struct rusage usage = { 0 };
    pid_t got;

    switch (r % 5) {
    case 0:
        return waitpid(pid, status, 0);
    case 1:
        return waitpid(-1, status, 0);
    case 2:
        while ((got = waitpid(-1, status, WNOHANG)) == 0)
            guest_pause_us(300);
        return got;
    case 3:
        got = wait4(pid, status, 0, &usage);
        CHECK(usage.ru_utime.tv_sec >= 0 && usage.ru_utime.tv_sec < 5);
        return got;
    default:
        return wait3(status, 0, &usage);
    }
}

int main(void)
{
    long sum = 0;
    int go[2];

    CHECK(pipe(go) == 0);
    FAILS(waitpid(-1, NULL, 0), ECHILD);
    for (int r = 0; r < ROUNDS; r++) {
        pid_t pids[CHILDREN];
        int seen = 0, status;
        for (int c = 0; c < CHILDREN; c++) {
            pids[c] = fork();
            CHECK(pids[c] >= 0);
            if (pids[c] == 0)
                child(r, c, go[0]);
        }
        CHECK(waitpid(-1, &status, WNOHANG) == 0);
        guest_write_all(go[1], "goes", CHILDREN);
        for (int i = 0; i < CHILDREN; i++) {
            pid_t got = wait_in_some_way(r, pids[CHILDREN - 1 - i], &status);
            int c = 0;
            while (c < CHILDREN && pids[c] != got)
                c++;
            CHECK(c < CHILDREN && !(seen & 1 << c));
            seen |= 1 << c;
            CHECK(status == wanted(r, c));
            sum += status;
            FAILS(waitpid(got, &status, WNOHANG), ECHILD);
        }
        FAILS(waitpid(-1, NULL, WNOHANG), ECHILD);
    }
    printf("sum %ld\n", sum);
    return guest_ok();
}
