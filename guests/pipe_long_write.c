// Shows: a write of more than a pipe holds, read slowly while it waits for room, arrives whole and once.
// Breaks if: readers have told of more than the log knows to have gone in, and the contents of the pipe say nothing then.
#include "long_pipe.h"

enum { ROUNDS = 24 };

int main(void)
{
    for (int round = 0; round < ROUNDS; round++)
        long_pipe_passes(round);
    return guest_ok();
}
