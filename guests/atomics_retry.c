// Shows: retry loops around lock cmpxchg, of one, two, four and eight bytes: what a thread has read too early it reads again, in
// a standby as in its primary, and what it computes from it is the same.
// Breaks if: a comparison that fails only in the standby counts as the logged one.
// kit: varies
// kit: stale a race, and beside a recording nobody orders atomic instructions
// kit: serial one thread at a time: its threads are ordered by nothing that a recording has
// kit: schedule its threads are ordered by atomic instructions of their own
#include "guest.h"

enum { THREADS = 4, ROUNDS = 300, EACH = 4 };

static unsigned char one;
static unsigned short two;
static unsigned int four;
static unsigned long eight;

#define STEP(word, tag) \
    do { \
        __typeof__(word) seen = __atomic_load_n(&word, __ATOMIC_RELAXED), next; \
        do \
            next = (__typeof__(word))(seen * 33 + (tag)); \
        while (!__atomic_compare_exchange_n(&word, &seen, next, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)); \
        mine = mine * 7 + seen; \
    } while (0)

static void *run(void *arg)
{
    char line[64];
    int sink = open("/dev/null", O_WRONLY);
    unsigned long mine = 0;

    CHECK(sink >= 0);
    for (int r = 0; r < ROUNDS; r++) {
        unsigned long tag = (unsigned long)guest_num(arg) + 1;

        for (int k = 0; k < EACH; k++) {
            STEP(one, tag);
            STEP(two, tag);
            STEP(four, tag);
            STEP(eight, tag);
        }
        int len = snprintf(line, sizeof line, "%ld %lx\n", guest_num(arg), mine);
        RETURNS(write(sink, line, (size_t)len), len);
        if (r % 4 == 0)
            guest_pause_us(500);
    }
    ZERO(close(sink));
    return guest_ptr((long)(mine & 0xffff));
}

int main(void)
{
    guest_run(run, THREADS);
    printf("%x %x %x %lx\n", one, two, four, eight);
    return guest_ok();
}
