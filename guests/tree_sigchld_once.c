// Shows: one child's end is one SIGCHLD, which is there before the wait that tells of it returns: also to a process that is killed meanwhile.
// Breaks if: a signal is lost with a primary that had been told of the end, or a wait and the supervisor's reminder both tell of it.
// kit: tree
#include "one_child.h"

enum { ROUNDS = 12 };

int main(void)
{
    for (int r = 0; r < ROUNDS; r++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
            has_one();
        CHECK(status_of(pid) == 7);
    }
    return guest_ok();
}
