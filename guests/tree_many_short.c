// Shows: a hundred children in a row, each alive for a moment only; their exit codes and the last word of each are checked.
// Breaks if: a child too young to have a standby delays its parent, leaves something behind, or its end is told wrong after the parent's failover.
#include "guest.h"
#include <sys/wait.h>

enum { CHILDREN = 120 };

int main(void)
{
    int ends[2], status;
    long sum = 0, word;

    CHECK(pipe(ends) == 0);
    for (long c = 0; c < CHILDREN; c++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            word = (long)getpid() * 1000 + c;
            guest_write_all(ends[1], &word, sizeof word);
            if (c % 4 == 0)
                guest_pause_us(1000);
            _exit((int)(c * 7 % 256));
        }
        if (c % 2)
            CHECK(waitpid(pid, &status, 0) == pid);
        else
            CHECK(waitpid(-1, &status, 0) == pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == c * 7 % 256);
        guest_read_all(ends[0], &word, sizeof word);
        CHECK(word == (long)pid * 1000 + c);
        sum += WEXITSTATUS(status);
        guest_pause_us(2000);
    }
    FAILS(waitpid(-1, &status, 0), ECHILD);
    printf("sum %ld\n", sum);
    return guest_ok();
}
