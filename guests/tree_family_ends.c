// Shows: processes that share a megabyte end in every way: by exit, by another program, by SIGTERM, by a relative's SIGKILL; others are made.
// Breaks if: what one did there on its way to its end is missing in the others' standbys, or an end is told wrongly when all take over.
// kit: tree
// kit: no-kill a signal or an exec that ends one is the end of all standbys: some kills meet nobody who could take over
// kit: allow unprotected memory that a child shares and that is newer than its parent's standby costs that standby
// kit: allow standby_lost the same
// kit: stale a recorded group has no family: a standby beside a recording sees the memory as it was
// kit: serial one thread at a time: its threads, or processes, do to each other what no lock orders
#include "guest.h"
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { ROUNDS = 24, STEPS = 12 };

struct shared {
    atomic_int lock;
    long count;
    long by[ROUNDS + 1];
    char room[1 << 20];
};

static void step(struct shared *s, int me)
{
    while (atomic_exchange_explicit(&s->lock, 1, memory_order_acquire))
        guest_pause_us(100);
    s->count++;
    s->by[me]++;
    s->room[guest_mix((uint64_t)s->count) % sizeof s->room]++;
    atomic_store_explicit(&s->lock, 0, memory_order_release);
}

static void child(struct shared *s, int me, int to)
{
    for (int n = 0; n < STEPS; n++) {
        step(s, me);
        guest_pause_us(500);
    }
    switch (me % 4) {
    case 0:
        _exit(me);
    case 1:
        execl("/bin/sh", "sh", "-c", "exit 7", NULL);
        _exit(99);
    default:
        guest_write_all(to, "x", 1);
        for (;;)
            pause();
    }
}

int main(void)
{
    int ready[2], status;
    char token;
    struct shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(s != MAP_FAILED && pipe(ready) == 0);
    pid_t companion = fork();
    CHECK(companion >= 0);
    if (companion == 0) {
        for (int n = 0; n < ROUNDS * STEPS; n++) {
            step(s, ROUNDS);
            guest_pause_us(1500);
        }
        _exit(5);
    }
    for (int me = 0; me < ROUNDS; me++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
            child(s, me, ready[1]);
        if (me % 4 >= 2) {
            guest_read_all(ready[0], &token, 1);
            CHECK(kill(pid, me % 4 == 2 ? SIGTERM : SIGKILL) == 0);
        }
        CHECK(waitpid(pid, &status, 0) == pid);
        switch (me % 4) {
        case 0:
            CHECK(WIFEXITED(status) && WEXITSTATUS(status) == me);
            break;
        case 1:
            CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
            break;
        default:
            CHECK(WIFSIGNALED(status) && WTERMSIG(status) == (me % 4 == 2 ? SIGTERM : SIGKILL));
        }
        CHECK(s->by[me] == STEPS);
    }
    CHECK(waitpid(companion, &status, 0) == companion && WIFEXITED(status) && WEXITSTATUS(status) == 5);
    CHECK(s->by[ROUNDS] == ROUNDS * STEPS && s->count == 2 * ROUNDS * STEPS);
    long rooms = 0;
    for (size_t i = 0; i < sizeof s->room; i++)
        rooms += s->room[i];
    CHECK(rooms == s->count);
    return guest_ok();
}
