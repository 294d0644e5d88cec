// Shows: a child of fork makes threads of its own: a queue with mutex and condition variable feeds four workers, results go through a pipe.
// Breaks if: threads made after a fork are not followed, or an item is worked on twice or never.
// kit: tree
#include "guest.h"
#include <sys/wait.h>

enum { WORKERS = 4, ITEMS = 600 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, writing = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER;
static long queue[ITEMS];
static int queued, taken, closed, results;

static void *work(void *arg)
{
    (void)arg;
    for (;;) {
        long item[2];
        ZERO(pthread_mutex_lock(&lock));
        while (taken == queued && !closed)
            ZERO(pthread_cond_wait(&filled, &lock));
        if (taken == queued) {
            ZERO(pthread_mutex_unlock(&lock));
            return NULL;
        }
        item[0] = queue[taken++];
        ZERO(pthread_mutex_unlock(&lock));
        item[1] = (long)(guest_work((uint64_t)item[0], 500) >> 1);
        ZERO(pthread_mutex_lock(&writing));
        guest_write_all(results, item, sizeof item);
        ZERO(pthread_mutex_unlock(&writing));
    }
}

static void child(int in, int out)
{
    pthread_t t[WORKERS];
    long n;

    results = out;
    for (int w = 0; w < WORKERS; w++)
        t[w] = guest_start(work, NULL);
    for (ssize_t got; (got = read(in, &n, sizeof n)) != 0;) {
        CHECK(got == sizeof n);
        ZERO(pthread_mutex_lock(&lock));
        queue[queued++] = n;
        ZERO(pthread_cond_signal(&filled));
        ZERO(pthread_mutex_unlock(&lock));
    }
    ZERO(pthread_mutex_lock(&lock));
    closed = 1;
    ZERO(pthread_cond_broadcast(&filled));
    ZERO(pthread_mutex_unlock(&lock));
    for (int w = 0; w < WORKERS; w++)
        guest_join(t[w]);
    _exit(taken == ITEMS ? 0 : 1);
}

int main(void)
{
    static char seen[ITEMS];
    int down[2], up[2], status;
    uint64_t sum = 0;

    CHECK(pipe(down) == 0 && pipe(up) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        CHECK(close(down[1]) == 0 && close(up[0]) == 0);
        child(down[0], up[1]);
    }
    CHECK(close(down[0]) == 0 && close(up[1]) == 0);
    /* Eight are always on their way, so that all workers have work. */
    for (long sent = 0, got = 0; got < ITEMS; got++) {
        long item[2];
        for (; sent < ITEMS && sent < got + 8; sent++)
            guest_write_all(down[1], &sent, sizeof sent);
        guest_read_all(up[0], item, sizeof item);
        CHECK(item[0] >= 0 && item[0] < ITEMS && !seen[item[0]]);
        CHECK(item[1] == (long)(guest_work((uint64_t)item[0], 500) >> 1));
        seen[item[0]] = 1;
        sum += (uint64_t)item[1];
        guest_pause_us(600);
    }
    CHECK(close(down[1]) == 0 && read(up[0], seen, 1) == 0);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    printf("sum %016llx\n", (unsigned long long)sum);
    return guest_ok();
}
