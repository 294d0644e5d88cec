// Shows: memory made for children that are yet to come: anonymous and shared, used alone for a while, then by a child as well.
// Breaks if: a copy that takes over before the fork has that memory for itself alone.
// kit: allow unprotected memory that a child shares and that is newer than its parent's standby costs that standby
// kit: allow standby_lost the same
#include "guest.h"
#include <sys/mman.h>
#include <sys/wait.h>

enum { ROUNDS = 60 };

int main(void)
{
    long *words = (long *)mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(words != MAP_FAILED);
    for (int r = 0; r < ROUNDS; r++) {
        words[r] = r;
        guest_pause_us(1000);
    }
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        for (int r = 0; r < ROUNDS; r++)
            words[ROUNDS + r] = words[r] + 1000;
        _exit(0);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    for (int r = 0; r < ROUNDS; r++)
        CHECK(words[r] == r && words[ROUNDS + r] == r + 1000);
    printf("%d rounds\n", ROUNDS);
    return guest_ok();
}
