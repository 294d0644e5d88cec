// Shows: threads set and unset variables of their own at the same time; afterwards all read them.
// Breaks if: the order in which the environment grows differs between copies: environ then lists other places.
#include "guest.h"

enum { THREADS = 4, ROUNDS = 64, NAMES = 8 };

static pthread_barrier_t phase;
/* What putenv is given stays the environment's. */
static char kept[THREADS][64];

/* getenv beside setenv is a race by definition: a barrier separates the two phases. */
static void *run(void *arg)
{
    long me = guest_num(arg);
    char name[32], value[64];

    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 0; i < NAMES; i++) {
            snprintf(name, sizeof name, "GUEST_%ld_%d", me, i);
            snprintf(value, sizeof value, "value %d of thread %ld", r, me);
            CHECK(setenv(name, value, 1) == 0);
        }
        snprintf(name, sizeof name, "GUEST_%ld_%d", me, r % NAMES);
        CHECK(unsetenv(name) == 0);
        snprintf(kept[me], sizeof kept[me], "GUEST_%ld=kept %d", me, r);
        CHECK(putenv(kept[me]) == 0);
        pthread_barrier_wait(&phase);
        for (long other = 0; other < THREADS; other++) {
            snprintf(name, sizeof name, "GUEST_%ld", other);
            snprintf(value, sizeof value, "kept %d", r);
            CHECK(getenv(name) && strcmp(getenv(name), value) == 0);
            for (int i = 0; i < NAMES; i++) {
                snprintf(name, sizeof name, "GUEST_%ld_%d", other, i);
                snprintf(value, sizeof value, "value %d of thread %ld", r, other);
                const char *got = getenv(name);
                CHECK(i == r % NAMES ? got == NULL : got && strcmp(got, value) == 0);
            }
        }
        guest_pause_us(300);
        pthread_barrier_wait(&phase);
    }
    return NULL;
}

int main(void)
{
    pthread_t t[THREADS];

    ZERO(pthread_barrier_init(&phase, NULL, THREADS));
    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, guest_ptr(i));
    for (int i = 0; i < THREADS; i++)
        guest_join(t[i]);
    printf("rounds %d\n", ROUNDS);
    return guest_ok();
}
