// Shows: SIGCHLD ignored, or SA_NOCLDWAIT: ended children leave nothing behind, and wait returns ECHILD once all have ended.
// Breaks if: a child's end is kept for a parent that wants none, or wait ends before the last child has.
// kit: tree
#include "guest.h"
#include <signal.h>
#include <sys/wait.h>

enum { ROUNDS = 14, CHILDREN = 3 };

int main(void)
{
    struct sigaction ignore = { .sa_handler = SIG_IGN }, none = { .sa_handler = SIG_DFL, .sa_flags = SA_NOCLDWAIT };
    struct sigaction usual = { .sa_handler = SIG_DFL };
    int ends[2], status;
    long sum = 0;

    CHECK(pipe(ends) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        pid_t pids[CHILDREN];
        CHECK(sigaction(SIGCHLD, r % 2 ? &ignore : &none, NULL) == 0);
        for (long c = 0; c < CHILDREN; c++) {
            pids[c] = fork();
            CHECK(pids[c] >= 0);
            if (pids[c] == 0) {
                guest_pause_us(7000 + 4000 * c);
                guest_write_all(ends[1], &c, sizeof c);
                _exit(3);
            }
        }
        FAILS(wait(&status), ECHILD);
        for (int c = 0; c < CHILDREN; c++) {
            long n;
            /* A child that no wait will tell of is gone a moment later. */
            while (kill(pids[c], 0) == 0)
                guest_pause_us(100);
            CHECK(errno == ESRCH);
            guest_read_all(ends[0], &n, sizeof n);
            sum += n;
        }
        CHECK(sigaction(SIGCHLD, &usual, NULL) == 0);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            guest_pause_us(9000);
            _exit(4);
        }
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 4);
        FAILS(waitpid(pid, &status, 0), ECHILD);
    }
    printf("sum %ld\n", sum);
    return guest_ok();
}
