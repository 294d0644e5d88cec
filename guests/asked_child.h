// What a parent asks a child that answers by guest_mix: for guests about a child that serves.
#ifndef ASKED_CHILD_H
#define ASKED_CHILD_H

#include "guest.h"
#include <sys/wait.h>

/* Asks so many questions, one after the other, and waits for the child's end. */
static inline void ask_child(pid_t child, int talk, uint64_t rounds)
{
    int status;

    for (uint64_t r = 0; r < rounds; r++) {
        uint64_t number = r;
        guest_write_all(talk, &number, sizeof number);
        guest_read_all(talk, &number, sizeof number);
        CHECK(number == guest_mix(r));
        guest_pause_us(2000);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

#endif
