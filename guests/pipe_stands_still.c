// Shows: a thread in the middle of a write that a full pipe holds up stands still for a new standby, and keeps nobody waiting for that.
// Breaks if: it goes on waiting for the pipe: other threads stop for half a second, and there is no standby until the reader comes.
// kit: tree
#include "guest.h"
#include <sys/wait.h>

enum { BYTES = 200000, ROUNDS = 2, LONGEST_MS = 450 };

static char bytes[BYTES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int over;
static long longest_ms;

static int is_over(int now)
{
    pthread_mutex_lock(&lock);
    over |= now;
    now = over;
    pthread_mutex_unlock(&lock);
    return now;
}

static void *look(void *arg)
{
    long before = guest_now_ns(CLOCK_MONOTONIC) / 1000000;

    (void)arg;
    while (!is_over(0)) {
        guest_pause_us(1000);
        long now = guest_now_ns(CLOCK_MONOTONIC) / 1000000;
        longest_ms = now - before > longest_ms ? now - before : longest_ms;
        before = now;
    }
    return NULL;
}

static void drain(int from)
{
    static char place[65536];
    long got = 0, n;

    guest_pause_us(600000);
    while ((n = read(from, place, sizeof place)) > 0)
        got += n;
    _exit(got == BYTES ? 7 : 1);
}

int main(void)
{
    pthread_t t = guest_start(look, NULL);
    int status;

    for (int r = 0; r < ROUNDS; r++) {
        int pipes[2];

        CHECK(pipe(pipes) == 0);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            CHECK(close(pipes[1]) == 0);
            drain(pipes[0]);
        }
        CHECK(close(pipes[0]) == 0);
        CHECK(write(pipes[1], bytes, BYTES) == BYTES);
        CHECK(close(pipes[1]) == 0);
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    }
    is_over(1);
    guest_join(t);
    CHECK(longest_ms < LONGEST_MS);
    return guest_ok();
}
