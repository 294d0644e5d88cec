// Shows: parent and child store into shared memory what the other one finds there behind a sleep, a wait for nothing or a write into a full pipe, and behind no other call.
// Breaks if: a standby does not see behind a call that only waits what its primary saw there.
// kit: tree
// kit: allow unprotected memory that a child shares and that is newer than its parent's standby costs that standby
#include "guest.h"
#include <poll.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/wait.h>

enum { ROUNDS = 60, WORDS = 40, MORE = 72 << 10 };

// Each side writes to its own half only.
struct half {
    _Atomic long round;
    uint64_t block[WORDS];
};

// Some other sleep each time.
static void doze(long n)
{
    const struct timespec shortly = { 0, 2000000 };
    struct timeval same = { 0, 2000 };

    switch (n % 4) {
    case 0:
        RETURNS(nanosleep(&shortly, NULL), 0);
        break;
    case 1:
        RETURNS(clock_nanosleep(CLOCK_MONOTONIC, 0, &shortly, NULL), 0);
        break;
    case 2:
        RETURNS(poll(NULL, 0, 2), 0);
        break;
    default:
        RETURNS(select(0, NULL, NULL, NULL, &same), 0);
    }
}

static void publish(struct half *mine, long r, long salt)
{
    for (int w = 0; w < WORDS; w++)
        mine->block[w] = guest_mix((uint64_t)(r * WORDS + w + salt));
    atomic_store_explicit(&mine->round, r, memory_order_release);
}

static void look(struct half *theirs, long r, long salt)
{
    CHECK(atomic_load(&theirs->round) == r);
    for (int w = 0; w < WORDS; w++)
        CHECK(theirs->block[w] == guest_mix((uint64_t)(r * WORDS + w + salt)));
}

static void await(struct half *theirs, long r, long salt)
{
    // It has been stored long before the first look, but on a machine that is very busy.
    do
        doze(r);
    while (atomic_load_explicit(&theirs->round, memory_order_acquire) < r);
    look(theirs, r, salt);
}

// Tells the other one first, and stores then.
static void say(struct half *mine, int out, long r, long salt)
{
    guest_write_all(out, &r, sizeof r);
    publish(mine, r, salt);
}

static void hear(struct half *theirs, int in, long r, long salt)
{
    long told;

    guest_read_all(in, &told, sizeof told);
    CHECK(told == r);
    await(theirs, r, salt);
}

int main(void)
{
    static unsigned char much[MORE];
    int status, down[2], up[2];
    struct half *halves = (struct half *)mmap(NULL, 2 * sizeof *halves, PROT_READ | PROT_WRITE,
                                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(halves != MAP_FAILED && pipe(down) == 0 && pipe(up) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        for (long r = 1; r <= ROUNDS; r++) {
            hear(&halves[0], down[0], r, 0);
            say(&halves[1], up[1], r, 7);
            // There is room for all of it once most is read, and that is behind these stores.
            guest_read_all(down[0], much, 8);
            publish(&halves[1], r, 9);
            guest_read_all(down[0], much, MORE - 8);
        }
        _exit(0);
    }
    for (long r = 1; r <= ROUNDS; r++) {
        say(&halves[0], down[1], r, 0);
        hear(&halves[1], up[0], r, 7);
        guest_write_all(down[1], much, MORE);
        look(&halves[1], r, 9);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    printf("rounds %d\n", ROUNDS);
    CHECK(munmap(halves, 2 * sizeof *halves) == 0);
    return guest_ok();
}
