// Shows: flockfile makes a block of several calls one; it nests, and ftrylockfile tells when another thread holds it.
// Breaks if: flockfile's owner is compared with a thread id that is not the group's.
#include "guest.h"

enum { THREADS = 3, ROUNDS = 90 };

static FILE *file;
static pthread_barrier_t held, asked;

static void *run(void *arg)
{
    int me = (int)guest_num(arg);

    for (int r = 0; r < ROUNDS; r++) {
        flockfile(file);
        flockfile(file);
        fprintf(file, "begin %d\n", me);
        if (r % 5 == 0)
            guest_pause_us(200);
        fprintf(file, "middle %d\n", me);
        funlockfile(file);
        fprintf(file, "end %d\n", me);
        funlockfile(file);
        pthread_barrier_wait(&asked);
        if (r % THREADS == me)
            flockfile(file);
        pthread_barrier_wait(&held);
        if (r % THREADS != me)
            CHECK(ftrylockfile(file) != 0);
        pthread_barrier_wait(&asked);
        if (r % THREADS == me) {
            CHECK(ftrylockfile(file) == 0);
            funlockfile(file);
            funlockfile(file);
        }
        pthread_barrier_wait(&held);
    }
    return NULL;
}

int main(void)
{
    pthread_t t[THREADS];
    int a, b, c, blocks = 0;

    ZERO(pthread_barrier_init(&held, NULL, THREADS));
    ZERO(pthread_barrier_init(&asked, NULL, THREADS));
    file = tmpfile();
    CHECK(file != NULL);
    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, guest_ptr(i));
    for (int i = 0; i < THREADS; i++)
        guest_join(t[i]);
    rewind(file);
    for (; fscanf(file, "begin %d\nmiddle %d\nend %d\n", &a, &b, &c) == 3; blocks++)
        CHECK(a == b && b == c);
    CHECK(fclose(file) == 0);
    printf("blocks %d\n", blocks);
    CHECK(blocks == THREADS * ROUNDS);
    return guest_ok();
}
