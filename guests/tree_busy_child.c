// Shows: a child that computes without any wait for most of its life, and writes a word now and then; its parent waits and counts.
// Breaks if: a child that does nothing patient never gets a standby, or is stopped in its work for one.
// kit: tree
// kit: allow unprotected a thread interrupted while it computes costs the standby, and a new one is made
#include "guest.h"
#include <sys/wait.h>

enum { WORDS = 150, STEPS = 400000 };

int main(void)
{
    int ends[2], status;
    uint64_t x = 42, got;

    CHECK(pipe(ends) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        for (int w = 0; w < WORDS; w++) {
            x = guest_work(x, STEPS);
            guest_write_all(ends[1], &x, sizeof x);
        }
        _exit(0);
    }
    CHECK(close(ends[1]) == 0);
    /* Checked at the end: the parent is to be idle while the child works. */
    static uint64_t words[WORDS];
    for (int w = 0; w < WORDS; w++)
        guest_read_all(ends[0], &words[w], sizeof words[w]);
    CHECK(read(ends[0], &got, 1) == 0);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    for (int w = 0; w < WORDS; w++)
        CHECK(words[w] == (x = guest_work(x, STEPS)));
    printf("last %016llx\n", (unsigned long long)x);
    return guest_ok();
}
