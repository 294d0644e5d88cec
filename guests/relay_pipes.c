// Shows: numbers handed on in strict turns through two pipes, one for each direction, and through a FIFO that both hold open.
// Breaks if: a transfer in doubt is made again, or lost, after its peer has answered it.
#include "relay.h"

enum { PIPES = 4, PAIRS = PIPES + 2, ROUNDS = 2500 };

static int pipes[PAIRS][2][2];

static void put(struct relay *r, int end, uint64_t number)
{
    guest_write_all(pipes[r->fd[0]][end][1], &number, sizeof number);
}

static uint64_t take(struct relay *r, int end)
{
    uint64_t number;

    guest_read_all(pipes[r->fd[0]][!end][0], &number, sizeof number);
    return number;
}

int main(void)
{
    struct relay relays[PAIRS];

    guest_scratch();
    for (int i = 0; i < PAIRS; i++) {
        relays[i] = (struct relay){ .fd = { i, i }, .put = put, .take = take };
        for (int way = 0; way < 2; way++) {
            struct guest_name name = guest_path("fifo");
            if (i < PIPES) {
                CHECK(pipe(pipes[i][way]) == 0);
                continue;
            }
            CHECK(mkfifo(name.s, 0600) == 0);
            pipes[i][way][0] = open(name.s, O_RDWR);
            pipes[i][way][1] = open(name.s, O_WRONLY);
            CHECK(pipes[i][way][0] >= 0 && pipes[i][way][1] >= 0 && unlink(name.s) == 0);
        }
    }
    relay_all(relays, PAIRS, ROUNDS);
    guest_scratch_end();
    return guest_ok();
}
