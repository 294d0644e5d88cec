// Shows: twenty-four threads that wait in read for one pipe: each record comes to one of them, once.
// Breaks if: a promotion tells no more than sixteen calls of one stream apart, and says that it has settled all.
#include "guest.h"

enum { READERS = 24, ROUNDS = 1500 };

static int ends[2];
static unsigned char seen[ROUNDS];

static void *take(void *arg)
{
    (void)arg;
    for (;;) {
        int record;
        RETURNS(read(ends[0], &record, sizeof record), (int)sizeof record);
        if (record < 0)
            return NULL;
        CHECK(__atomic_fetch_add(&seen[record], 1, __ATOMIC_SEQ_CST) == 0);
    }
}

int main(void)
{
    pthread_t readers[READERS];

    CHECK(pipe(ends) == 0);
    for (int i = 0; i < READERS; i++)
        readers[i] = guest_start(take, NULL);
    for (int r = 0; r < ROUNDS; r++) {
        RETURNS(write(ends[1], &r, sizeof r), (int)sizeof r);
        guest_pause_us(100);
    }
    for (int i = 0; i < READERS; i++) {
        int end = -1;
        RETURNS(write(ends[1], &end, sizeof end), (int)sizeof end);
    }
    for (int i = 0; i < READERS; i++)
        guest_join(readers[i]);
    for (int r = 0; r < ROUNDS; r++)
        CHECK(seen[r] == 1);
    return guest_ok();
}
