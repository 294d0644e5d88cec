// Shows: getrandom, getentropy, /dev/urandom and AT_RANDOM: fresh bytes that a copy must know too.
// Breaks if: each copy draws its own bytes: the value kept in memory differs from the one that was written out.
#include "guest.h"
#include <sys/random.h>
#include <sys/auxv.h>

enum { THREADS = 3, ROUNDS = 40 };

static int ends[2];

static void *run(void *arg)
{
    int device = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    unsigned char drawn[64], back[64];

    (void)arg;
    CHECK(device >= 0);
    for (int r = 0; r < ROUNDS; r++) {
        CHECK(getrandom(drawn, 24, 0) == 24);
        CHECK(getentropy(drawn + 24, 16) == 0);
        CHECK(read(device, drawn + 40, 24) == 24);
        int own[2];
        CHECK(pipe2(own, O_CLOEXEC) == 0);
        guest_write_all(own[1], drawn, sizeof drawn);
        guest_pause_us(300);
        /* What went out is what memory still says, whichever copy looks. */
        guest_read_all(own[0], back, sizeof back);
        CHECK(memcmp(drawn, back, sizeof drawn) == 0);
        CHECK(close(own[0]) == 0 && close(own[1]) == 0);
    }
    CHECK(close(device) == 0);
    return NULL;
}

int main(void)
{
    pthread_t t[THREADS];
    unsigned char at_start[16];

    memcpy(at_start, (const void *)getauxval(AT_RANDOM), sizeof at_start);
    CHECK(pipe(ends) == 0);
    guest_write_all(ends[1], at_start, sizeof at_start);
    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, NULL);
    for (int i = 0; i < THREADS; i++)
        guest_join(t[i]);
    guest_read_all(ends[0], at_start, sizeof at_start);
    CHECK(memcmp(at_start, (const void *)getauxval(AT_RANDOM), sizeof at_start) == 0);
    return guest_ok();
}
