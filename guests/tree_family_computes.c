// Shows: a process that shares a megabyte spins, for longer than anybody waits for a door, while another one works there.
// Breaks if: whoever takes over waits until every process has come to a door, or stops one of them in the middle and loses what it has done.
// kit: tree
// kit: family the end of one standby is the end of all
// kit: allow unprotected memory that a child shares and that is newer than its parent's standby costs that standby
// kit: allow standby_lost the same
// kit: allow diverged who spins is passed over, and then nothing orders what it reads
// kit: no-record what another process writes without a lock is not there in a replay
// kit: stale a recorded group has no family: a standby beside a recording sees the memory as it was
// kit: serial one thread at a time: its threads, or processes, do to each other what no lock orders
#include "guest.h"
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { SPINNERS = 1, ROUNDS = 60, STEPS = 250 };

struct shared {
    atomic_int spinning, is_over;
    atomic_long count;
    uint64_t by[SPINNERS];
    char room[1 << 20];
};

/* Talks for a while, so that it is one of the family, and comes to no door then until the others are done. */
static void spinner(struct shared *s, int me)
{
    uint64_t x = (uint64_t)me;
    for (int n = 0; n < ROUNDS; n++) {
        x = guest_mix(x);
        guest_pause_us(1000);
    }
    atomic_fetch_add(&s->spinning, 1);
    long seen = 0, now;
    while (!atomic_load(&s->is_over)) {
        now = atomic_load(&s->count);
        if (now < seen)
            _exit(40);
        seen = now;
    }
    s->by[me] = x;
    _exit(3 + me);
}

int main(void)
{
    int status;
    struct shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(s != MAP_FAILED);
    memset(s->room, 1, sizeof s->room);
    for (int me = 0; me < SPINNERS; me++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
            spinner(s, me);
    }
    while (atomic_load(&s->spinning) < SPINNERS)
        guest_pause_us(1000);
    for (int n = 0; n < STEPS; n++) {
        s->room[(size_t)n * 2048]++;
        atomic_fetch_add(&s->count, 1);
        guest_pause_us(1000);
    }
    atomic_store(&s->is_over, 1);
    int codes = 0;
    for (int me = 0; me < SPINNERS; me++) {
        CHECK(waitpid(-1, &status, 0) > 0 && WIFEXITED(status));
        codes += WEXITSTATUS(status);
    }
    CHECK(codes == 3 && atomic_load(&s->count) == STEPS);
    for (int n = 0; n < STEPS; n++)
        CHECK(s->room[(size_t)n * 2048] == 2);
    for (int me = 0; me < SPINNERS; me++) {
        uint64_t x = (uint64_t)me;
        for (int n = 0; n < ROUNDS; n++)
            x = guest_mix(x);
        CHECK(s->by[me] == x);
    }
    printf("steps %d\n", STEPS);
    return guest_ok();
}
