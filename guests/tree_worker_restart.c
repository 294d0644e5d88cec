// Shows: a master keeps three workers; each ends on purpose after some jobs, and the master starts another in its place.
// Breaks if: a worker's wanted end is taken for a failure, a job is done twice or never, or a new worker is not followed.
// kit: tree
#include "guest.h"
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { WORKERS = 3, JOBS = 420, OF_ONE = 15 };

struct result {
    long job;
    uint64_t value;
};

static uint64_t value_of(long job) { return guest_work((uint64_t)job, 2000); }

/* Records: each job is taken by one worker, whole. */
static void work(int jobs, int results)
{
    for (int n = 0; n < OF_ONE; n++) {
        struct result result;
        ssize_t got = recv(jobs, &result.job, sizeof result.job, 0);
        if (got == 0)
            _exit(2);
        CHECK(got == sizeof result.job);
        guest_pause_us(3000);
        result.value = value_of(result.job);
        CHECK(send(results, &result, sizeof result, 0) == sizeof result);
    }
    _exit(1);
}

static int jobs[2], results[2];

static void start_worker(void)
{
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (pid == 0) {
        CHECK(close(jobs[1]) == 0 && close(results[1]) == 0);
        work(jobs[0], results[0]);
    }
}

static int replace_ended(void)
{
    int status, n = 0;

    for (; waitpid(-1, &status, WNOHANG) > 0; n++) {
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1);
        start_worker();
    }
    return n;
}

int main(void)
{
    static char seen[JOBS];
    int status, restarts = 0;
    uint64_t sum = 0;

    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, jobs) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, results) == 0);
    for (int w = 0; w < WORKERS; w++)
        start_worker();
    struct pollfd more = { .fd = results[1], .events = POLLIN };
    for (long sent = 0, got = 0; got < JOBS; got++) {
        struct result result;
        for (; sent < JOBS && sent < got + 2 * WORKERS; sent++)
            CHECK(send(jobs[1], &sent, sizeof sent, 0) == sizeof sent);
        /* All of them may have ended: a wait for results alone might have no end. */
        while (poll(&more, 1, 5) == 0)
            restarts += replace_ended();
        CHECK(recv(results[1], &result, sizeof result, 0) == sizeof result);
        CHECK(result.job >= 0 && result.job < JOBS && !seen[result.job] && result.value == value_of(result.job));
        seen[result.job] = 1;
        sum += result.value;
        restarts += replace_ended();
    }
    /* Those that wait for a job see the end of the socket; one may have ended just now. */
    CHECK(shutdown(jobs[1], SHUT_WR) == 0);
    for (int w = 0; w < WORKERS; w++) {
        CHECK(waitpid(-1, &status, 0) > 0 && WIFEXITED(status));
        restarts += WEXITSTATUS(status) == 1;
    }
    CHECK(restarts >= JOBS / OF_ONE - WORKERS && restarts <= JOBS / OF_ONE);
    printf("sum %016llx\n", (unsigned long long)sum);
    return guest_ok();
}
