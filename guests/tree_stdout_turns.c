// Shows: parent, child and grandchild print lines to the same stdout in turns that pipes hand over; what is in a buffer at fork or exit comes once.
// Breaks if: a line is printed by two copies, or never, or out of turn.
// kit: tree
#include "guest.h"
#include <sys/wait.h>

enum { MEMBERS = 3, ROUNDS = 120 };

static int turns[MEMBERS][2];
static char name[16];

static void at_end(void) { printf("exit handler of %s\n", name); }

static void print_in_turn(int me)
{
    for (int r = 0; r < ROUNDS; r++) {
        char byte;
        guest_read_all(turns[me][0], &byte, 1);
        printf("round %d: ", r);
        if (r % 2)
            CHECK(fflush(stdout) == 0);
        printf("%s\n", name);
        CHECK(fflush(stdout) == 0);
        guest_pause_us(800);
        guest_write_all(turns[(me + 1) % MEMBERS][1], "t", 1);
    }
}

int main(void)
{
    int status, me = 0;
    pid_t pid = 0;

    for (int m = 0; m < MEMBERS; m++)
        CHECK(pipe(turns[m]) == 0);
    CHECK(printf("first line\n") > 0 && fflush(stdout) == 0);
    while (me + 1 < MEMBERS && (pid = fork()) == 0)
        me++;
    CHECK(pid >= 0);
    snprintf(name, sizeof name, "member %d", me);
    if (me == 0)
        guest_write_all(turns[0][1], "t", 1);
    else
        CHECK(atexit(at_end) == 0);
    print_in_turn(me);
    if (me + 1 < MEMBERS)
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == me + 91);
    if (me > 0)
        exit(me + 90); /* with the handler, and its words in the buffer */
    return guest_ok();
}
