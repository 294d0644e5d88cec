// Shows: a parent that wants no word of its children's ends waits until they have ended all the same, whichever copy goes on.
// Breaks if: the kernel forgets the primary of a child that has failed over, and the parent is told that it has no children.
// kit: tree
#include "guest.h"
#include <signal.h>
#include <sys/wait.h>

enum { ROUNDS = 24, LIVES = 10 };

static void live(int to)
{
    for (int s = 0; s < LIVES; s++)
        guest_pause_us(2500);
    CHECK(write(to, "x", 1) == 1);
    _exit(3);
}

static void want_no_word(int round)
{
    struct sigaction action = { .sa_handler = round % 2 ? SIG_IGN : SIG_DFL, .sa_flags = round % 2 ? 0 : SA_NOCLDWAIT };

    CHECK(sigaction(SIGCHLD, &action, NULL) == 0);
}

int main(void)
{
    long ends = 0;

    for (int r = 0; r < ROUNDS; r++) {
        int pipes[2], count = r % 3 == 2 ? 2 : 1;
        char place[4];
        pid_t child = 0;

        want_no_word(r);
        CHECK(pipe2(pipes, O_NONBLOCK) == 0);
        for (int c = 0; c < count; c++) {
            child = fork();
            CHECK(child >= 0);
            if (child == 0)
                live(pipes[1]);
        }
        if (count == 1)
            CHECK(waitpid(child, NULL, WNOHANG) == 0);
        FAILS(r % 4 < 2 && count == 1 ? waitpid(child, NULL, 0) : wait(NULL), ECHILD);
        RETURNS(read(pipes[0], place, sizeof place), count);
        ends += count;
        CHECK(close(pipes[0]) == 0 && close(pipes[1]) == 0);
    }
    printf("ends %ld\n", ends);
    return guest_ok();
}
