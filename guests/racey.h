// A race whose outcome is one number: threads mix the elements of a small array into each other, each at places that the last
// value has named. Whoever's load or store comes at another moment leaves another number behind.
#ifndef RACEY_H
#define RACEY_H

#include "guest.h"

enum { RACEY_WORDS = 64 };

/* So that the compiler neither keeps a word in a register nor leaves a store out. */
static volatile unsigned racey_own[RACEY_WORDS];

static inline void racey_begin(volatile unsigned *words)
{
    for (unsigned w = 0; w < RACEY_WORDS; w++)
        words[w] = w * 2654435761u + 1;
}

/* One step: two words are looked up and one is changed. */
static inline unsigned racey_step(volatile unsigned *words, unsigned last)
{
    unsigned from = last % RACEY_WORDS, to = (last >> 8) % RACEY_WORDS;
    unsigned mixed = (words[from] ^ last) * 1103515245u + words[to] + 12345u;

    words[to] = mixed ^ (mixed >> 15);
    return mixed;
}

static inline unsigned racey_signature(const volatile unsigned *words)
{
    unsigned all = 17;

    for (unsigned w = 0; w < RACEY_WORDS; w++)
        all = all * 31u + words[w];
    return all;
}

/* The race of that many threads, and its signature. */
static inline int racey_run(void *(*race)(void *), int threads)
{
    racey_begin(racey_own);
    guest_run(race, threads);
    printf("signature %08x\n", racey_signature(racey_own));
    return guest_ok();
}

#endif
