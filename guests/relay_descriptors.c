// Shows: descriptors opened by one thread and closed, duplicated or replaced by another at once; their numbers come again.
// Breaks if: a close, dup2 or open in doubt is made again on a number that another thread has filled since.
#include "relay.h"
#include <semaphore.h>

enum { PAIRS = 4, ROUNDS = 1200 };

static sem_t turn[PAIRS][2];
static int given[PAIRS], fixed[PAIRS];

static void hand_on(int pair, int end) { CHECK(sem_post(&turn[pair][end]) == 0); }

static void await(int pair, int end)
{
    while (sem_wait(&turn[pair][!end]) != 0)
        CHECK(errno == EINTR);
}

static void holds(int fd, uint64_t number)
{
    uint64_t found = 0;

    CHECK(pread(fd, &found, sizeof found, 0) == sizeof found && found == number);
}

static void *first(void *arg)
{
    int pair = (int)guest_num(arg);

    for (uint64_t n = 0; n < ROUNDS; n++) {
        int fd = open(guest_scratch_dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        CHECK(fd >= 0 && pwrite(fd, &n, sizeof n, 0) == sizeof n);
        CHECK(dup2(fd, fixed[pair]) == fixed[pair]);
        given[pair] = fd;
        hand_on(pair, 0);
        await(pair, 0);
        /* What it was given in return is this round's file as well. */
        holds(given[pair], n);
        CHECK(close(given[pair]) == 0);
    }
    return NULL;
}

static void *second(void *arg)
{
    int pair = (int)guest_num(arg);

    for (uint64_t n = 0; n < ROUNDS; n++) {
        await(pair, 1);
        int fd = given[pair];
        holds(fd, n);
        CHECK(close(fd) == 0);
        holds(fixed[pair], n);
        given[pair] = fcntl(fixed[pair], F_DUPFD_CLOEXEC, 0);
        CHECK(given[pair] >= 0);
        hand_on(pair, 1);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[2 * PAIRS];

    guest_scratch();
    for (int i = 0; i < PAIRS; i++) {
        fixed[i] = dup(0);
        CHECK(fixed[i] >= 0 && sem_init(&turn[i][0], 0, 0) == 0 && sem_init(&turn[i][1], 0, 0) == 0);
    }
    int lowest = dup(0);
    CHECK(lowest >= 0 && close(lowest) == 0);
    for (int i = 0; i < PAIRS; i++) {
        threads[2 * i] = guest_start(second, guest_ptr(i));
        threads[2 * i + 1] = guest_start(first, guest_ptr(i));
    }
    for (int i = 0; i < 2 * PAIRS; i++)
        guest_join(threads[i]);
    RETURNS(dup(0), lowest); /* nothing is left open */
    guest_scratch_end();
    printf("%d pairs, %d rounds\n", PAIRS, ROUNDS);
    return guest_ok();
}
