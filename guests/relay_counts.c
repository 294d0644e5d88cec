// Shows: numbers handed on in strict turns as the counts of eventfds, and one by one through eventfds that are semaphores.
// Breaks if: an addition in doubt is made again, or lost, after the other side has taken it.
#include "relay.h"
#include <sys/eventfd.h>

enum { EACH = 4, ROUNDS = 2500 };

static int counts[2 * EACH][2];

static void put(struct relay *r, int end, uint64_t number)
{
    CHECK(write(counts[r->fd[0]][end], &number, sizeof number) == sizeof number);
}

static uint64_t take(struct relay *r, int end)
{
    uint64_t number;

    CHECK(read(counts[r->fd[0]][!end], &number, sizeof number) == sizeof number);
    return number;
}

/* Every turn is worth one; the number is how many there have been. */
static void post(struct relay *r, int end, uint64_t number)
{
    uint64_t one = 1;

    (void)number;
    CHECK(write(counts[r->fd[0]][end], &one, sizeof one) == sizeof one);
}

static uint64_t wait(struct relay *r, int end)
{
    static __thread uint64_t so_far;
    uint64_t one;

    CHECK(read(counts[r->fd[0]][!end], &one, sizeof one) == sizeof one && one == 1);
    so_far++;
    return end ? so_far : so_far + 1;
}

int main(void)
{
    struct relay relays[2 * EACH];
    uint64_t left;

    for (int i = 0; i < 2 * EACH; i++) {
        int is_semaphore = i >= EACH;
        relays[i] = (struct relay){ .fd = { i, i }, .put = is_semaphore ? post : put, .take = is_semaphore ? wait : take };
        for (int way = 0; way < 2; way++) {
            counts[i][way] = eventfd(0, is_semaphore ? EFD_SEMAPHORE : 0);
            CHECK(counts[i][way] >= 0);
        }
    }
    relay_all(relays, 2 * EACH, ROUNDS);
    for (int i = 0; i < 2 * EACH; i++) {
        for (int way = 0; way < 2; way++) {
            CHECK(fcntl(counts[i][way], F_SETFL, O_NONBLOCK) == 0);
            FAILS(read(counts[i][way], &left, sizeof left), EAGAIN);
        }
    }
    return guest_ok();
}
