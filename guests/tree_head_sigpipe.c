// Shows: a writer whose reader has enough: it dies of SIGPIPE, in the middle of a large write or at the next; the parent hears of that signal.
// Breaks if: a standby keeps the pipe's other end open, or the writer's death by SIGPIPE is taken for its primary's.
// kit: tree
#include "guest.h"
#include <signal.h>
#include <sys/wait.h>

enum { ROUNDS = 10 };

static void writer(int fd, size_t piece)
{
    static unsigned char data[200000];

    memset(data, 'y', sizeof data);
    for (;;) {
        CHECK(write(fd, data, piece) > 0);
        guest_pause_us(1000);
    }
}

int main(void)
{
    static unsigned char data[100000];
    long total = 0;
    int status;

    for (int r = 0; r < ROUNDS; r++) {
        int ends[2];
        size_t wanted = 20000 + 1000 * (size_t)r;
        CHECK(pipe(ends) == 0);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            CHECK(close(ends[0]) == 0);
            writer(ends[1], r % 2 ? sizeof data * 2 : 1000);
        }
        CHECK(close(ends[1]) == 0);
        guest_read_all(ends[0], data, wanted);
        for (size_t i = 0; i < wanted; i++)
            CHECK(data[i] == 'y');
        total += (long)wanted;
        guest_pause_us(10000);
        CHECK(close(ends[0]) == 0);
        CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE);
    }
    printf("total %ld\n", total);
    return guest_ok();
}
