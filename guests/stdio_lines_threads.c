// Shows: whole lines from many threads on one stdout: printf, fputs, puts, fwrite, putc under flockfile, fflush.
// Breaks if: the stream's lock is not a domain: lines then interleave differently in the copies and the buffer's bytes differ.
#include "guest.h"

enum { THREADS = 4, ROUNDS = 60 };

/* Every thread prints the same lines, so the output does not depend on who comes first. */
#define LINE "the quick brown fox jumps over the lazy dog 123456789\n"

static void *run(void *arg)
{
    (void)arg;
    for (int r = 0; r < ROUNDS; r++) {
        CHECK(printf("%s %s %d\n", "the quick brown fox jumps over", "the lazy dog", 123456789) > 0);
        CHECK(fputs(LINE, stdout) >= 0);
        CHECK(puts("the quick brown fox jumps over the lazy dog 123456789") >= 0);
        CHECK(fwrite(LINE, 1, sizeof LINE - 1, stdout) == sizeof LINE - 1);
        flockfile(stdout);
        for (const char *p = LINE; *p; p++)
            CHECK(putc_unlocked(*p, stdout) == *p);
        funlockfile(stdout);
        if (r % 7 == 0)
            CHECK(fflush(stdout) == 0);
        guest_pause_us(300);
    }
    return NULL;
}

int main(void)
{
    pthread_t t[THREADS];

    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, NULL);
    for (int i = 0; i < THREADS; i++)
        guest_join(t[i]);
    return guest_ok();
}
