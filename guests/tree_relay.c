// Shows: a parent and its children hand each other numbers in strict turns, without a pause: through pipes, socket pairs of every
//        kind, and TCP; each has two threads.
// Breaks if: a transfer in doubt is made again, or lost, after another process has answered it.
// kit: tree
#include "net.h"
#include "relay.h"
#include <sys/wait.h>

enum { KINDS = 4, CHILDREN = 2, RELAYS = KINDS * CHILDREN, ROUNDS = 1200 };

/* What each end writes to and reads from. */
static int to[RELAYS][2], from[RELAYS][2];

static void put(struct relay *r, int end, uint64_t number) { guest_write_all(to[r->fd[0]][end], &number, sizeof number); }

static uint64_t take(struct relay *r, int end)
{
    uint64_t number;

    guest_read_all(from[r->fd[0]][end], &number, sizeof number);
    return number;
}

static void open_relay(int i)
{
    int pair[2][2];

    if (i % KINDS == 0) {
        CHECK(pipe(pair[0]) == 0 && pipe(pair[1]) == 0);
        for (int end = 0; end < 2; end++) {
            to[i][end] = pair[end][1];
            from[i][end] = pair[!end][0];
        }
        return;
    }
    if (i % KINDS == 1)
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair[0]) == 0);
    else if (i % KINDS == 2)
        CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair[0]) == 0);
    else
        net_pair(pair[0]);
    for (int end = 0; end < 2; end++)
        to[i][end] = from[i][end] = pair[0][end];
}

/* A thread for each of this process's ends. */
static void play(struct relay *relays, int first, int count, void *(*side)(void *))
{
    pthread_t threads[RELAYS];

    for (int i = 0; i < count; i++)
        threads[i] = guest_start(side, &relays[first + i]);
    for (int i = 0; i < count; i++)
        guest_join(threads[i]);
}

int main(void)
{
    struct relay relays[RELAYS];
    pid_t children[CHILDREN];
    int status;

    for (int i = 0; i < RELAYS; i++) {
        relays[i] = (struct relay){ .fd = { i, i }, .put = put, .take = take, .rounds = ROUNDS };
        open_relay(i);
    }
    for (int c = 0; c < CHILDREN; c++) {
        children[c] = fork();
        CHECK(children[c] >= 0);
        if (children[c] == 0) {
            play(relays, c * KINDS, KINDS, relay_second);
            _exit(7 + c);
        }
    }
    play(relays, 0, RELAYS, relay_first);
    for (int c = 0; c < CHILDREN; c++) {
        CHECK(waitpid(children[c], &status, 0) == children[c]);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7 + c);
    }
    printf("%d children, %d rounds\n", CHILDREN, ROUNDS);
    return guest_ok();
}
