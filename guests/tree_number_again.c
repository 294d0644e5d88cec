// Shows: a process may have the number of one that has ended, whose children have ended behind it; what they left is nothing of its own.
// Breaks if: what is known of an orphan's end outlives its parent, and the next process of that number is told of it by wait, or by SIGCHLD.
// kit: tree
// kit: no-record a replay knows a process by its number: two that have the same within moments of each other may be mistaken there
// kit: alone it says which number the kernel gives next: another guest's process has that of one that is to be killed
#include "numbers.h"
#include "one_child.h"

enum { ROUNDS = 12 };

/* A process that ends at once; its child ends behind it, and before it has been waited for. Its number. */
static pid_t leaves_an_orphan(int line[2])
{
    char token;
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            guest_pause_us(2000);
            guest_write_all(line[1], "x", 1);
            _exit(9);
        }
        _exit(1);
    }
    guest_read_all(line[0], &token, 1);
    /* Until whoever has the orphan now knows of its end. */
    guest_pause_us(10000);
    CHECK(status_of(pid) == 1);
    return pid;
}

int main(void)
{
    int line[2], again = 0;
    CHECK(pipe(line) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        pid_t before = leaves_an_orphan(line);
        if (!next_number_is(before)) {
            fprintf(stderr, "numbers cannot be chosen: not shown\n");
            break;
        }
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
            has_one();
        again += pid == before;
        CHECK(status_of(pid) == 7);
    }
    fprintf(stderr, "%d of %d had the number again\n", again, ROUNDS);
    return guest_ok();
}
