// Shows: sixteen threads that make, cancel and join others without pause, so that each new thread takes the place of one just joined.
// Breaks if: a place is another thread's before the log has the join that freed it: a copy waits there for a join that never comes.
#include "guest.h"

enum { THREADS = 16, ROUNDS = 60 };

static void *reader(void *argument)
{
    const int *ends = argument;
    char byte;

    while (read(ends[0], &byte, 1) == 1)
        ;
    return NULL;
}

static void *makes(void *argument)
{
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t thread;
        void *result;
        int ends[2];

        RETURNS(pipe2(ends, O_CLOEXEC), 0);
        ZERO(pthread_create(&thread, NULL, reader, ends));
        RETURNS(write(ends[1], "xyz", 3), 3);
        if (round % 3 == 0)
            usleep(300);
        if (round % 2)
            ZERO(pthread_cancel(thread));
        else
            RETURNS(close(ends[1]), 0);
        ZERO(pthread_join(thread, &result));
        CHECK(result == (round % 2 ? PTHREAD_CANCELED : NULL));
        close(ends[0]);
        if (round % 2)
            close(ends[1]);
    }
    return argument;
}

int main(void)
{
    guest_run(makes, THREADS);
    return guest_ok();
}
