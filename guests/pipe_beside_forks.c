// Shows: a long write to a pipe of the process's own, and reads of messages from another one, while a third thread makes children
// that have both pipes and use neither: all arrives whole and once, whatever it ends with.
// Breaks if: a call that was begun on a pipe that nobody else had is judged by nothing, because a child was made since.
#include "long_pipe.h"
#include <sys/wait.h>

enum { ROUNDS = 16, MESSAGES = 12, MESSAGE = 8, TALKS = 8 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int over;

static int is_over(int now)
{
    ZERO(pthread_mutex_lock(&lock));
    over |= now;
    int seen = over;
    ZERO(pthread_mutex_unlock(&lock));
    return seen;
}

/* Their last byte is what the runtime lays there before it reads. */
static void *says(void *arg)
{
    static const unsigned char message[MESSAGE] = { 1, 2, 3, 4, 5, 6, 7, 0xbc };

    for (int i = 0; i < MESSAGES; i++) {
        RETURNS(write((int)guest_num(arg), message, MESSAGE), MESSAGE);
        if (i % 4 == 0)
            guest_pause_us(100);
    }
    return NULL;
}

static void *forks(void *arg)
{
    while (!is_over(0)) {
        int status;
        pid_t child = fork();

        CHECK(child >= 0);
        if (child == 0)
            _exit(3);
        RETURNS(waitpid(child, &status, 0), child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
        guest_pause_us(300);
    }
    return arg;
}

static void talk(void)
{
    unsigned char message[MESSAGE];
    int ends[2];

    ZERO(pipe2(ends, O_CLOEXEC));
    pthread_t speaker = guest_start(says, guest_ptr(ends[1]));
    for (int i = 0; i < MESSAGES; i++) {
        RETURNS(read(ends[0], message, MESSAGE), MESSAGE);
        CHECK(message[0] == 1 && message[MESSAGE - 1] == 0xbc);
    }
    guest_join(speaker);
    ZERO(close(ends[0]) + close(ends[1]));
}

int main(void)
{
    pthread_t forker = guest_start(forks, NULL);

    for (int round = 0; round < ROUNDS; round++) {
        long_pipe_passes(round);
        for (int i = 0; i < TALKS; i++)
            talk();
    }
    is_over(1);
    guest_join(forker);
    return guest_ok();
}
