// Shows: three children accept on one inherited listener and answer; the parent is client, many connections of a few requests.
// Breaks if: a connection that a child had accepted is lost or answered by two, or a child's copy accepts a connection of its own.
// kit: tree
#include "net.h"
#include <sys/wait.h>

enum { WORKERS = 3, ROUNDS = 90, CLIENTS = 2, REQUESTS = 4, STOP = -1 };

struct answer {
    long number;
    long worker;
};

/* Serves until a request says stop. Exactly one worker hears each such request, so each ends once. */
static void serve(int listener, int worker, int report)
{
    for (long served = 0;;) {
        int fd = accept(listener, NULL, NULL);
        long request;
        CHECK(fd >= 0);
        while (recv(fd, &request, sizeof request, MSG_WAITALL) == sizeof request) {
            if (request == STOP) {
                guest_write_all(report, &served, sizeof served);
                _exit(30 + worker);
            }
            struct answer answer = { request * 3, worker };
            guest_write_all(fd, &answer, sizeof answer);
            served++;
        }
        CHECK(close(fd) == 0);
    }
}

int main(void)
{
    struct sockaddr_in address;
    int listener = net_bound(SOCK_STREAM, &address), report[2], status;
    long asked = 0, served = 0;
    pid_t pids[WORKERS];

    CHECK(listen(listener, 64) == 0 && pipe(report) == 0);
    for (int w = 0; w < WORKERS; w++) {
        pids[w] = fork();
        CHECK(pids[w] >= 0);
        if (pids[w] == 0)
            serve(listener, w, report[1]);
    }
    for (int r = 0; r < ROUNDS; r++) {
        int fds[CLIENTS];
        long worker[CLIENTS];
        for (int c = 0; c < CLIENTS; c++)
            fds[c] = net_connect(&address);
        for (int n = 0; n < REQUESTS; n++) {
            for (int c = 0; c < CLIENTS; c++, asked++)
                guest_write_all(fds[c], &asked, sizeof asked);
            for (int c = 0; c < CLIENTS; c++) {
                struct answer answer;
                guest_read_all(fds[c], &answer, sizeof answer);
                CHECK(answer.number == (asked - CLIENTS + c) * 3);
                CHECK(n == 0 || answer.worker == worker[c]);
                worker[c] = answer.worker;
            }
            guest_pause_us(1000);
        }
        for (int c = 0; c < CLIENTS; c++)
            CHECK(close(fds[c]) == 0);
    }
    for (int w = 0; w < WORKERS; w++) {
        int fd = net_connect(&address);
        long stop = STOP, of_worker;
        guest_write_all(fd, &stop, sizeof stop);
        guest_read_all(report[0], &of_worker, sizeof of_worker);
        served += of_worker;
        CHECK(close(fd) == 0);
    }
    for (int w = 0; w < WORKERS; w++)
        CHECK(waitpid(pids[w], &status, 0) == pids[w] && WIFEXITED(status) && WEXITSTATUS(status) == 30 + w);
    CHECK(close(listener) == 0 && served == asked);
    printf("served %ld\n", served);
    return guest_ok();
}
