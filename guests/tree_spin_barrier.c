// Shows: processes that share memory meet at a barrier there that spins.
// Breaks if: a recording in turns waits for whoever spins, or its replay waits for the end of a turn that was passed over.
// kit: serial one process at a time: who spins waits for what another one stores
// kit: allow unprotected the memory is small, and changed by no call: LIMITS, processes that share memory
// kit: allow standby_lost the same
// kit: no-kill the same
#include "guest.h"
#include <sys/mman.h>
#include <sys/wait.h>

enum { CHILDREN = 2 };

static void meet(int *barrier)
{
    __atomic_sub_fetch(barrier, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(barrier, __ATOMIC_SEQ_CST) > 0) {
    }
}

int main(void)
{
    int *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    shared[0] = shared[1] = CHILDREN + 1;
    for (int c = 0; c < CHILDREN; c++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            meet(&shared[0]);
            meet(&shared[1]);
            _exit(3);
        }
    }
    meet(&shared[0]);
    meet(&shared[1]);
    for (int c = 0; c < CHILDREN; c++) {
        int status;
        CHECK(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 3);
    }
    return guest_ok();
}
