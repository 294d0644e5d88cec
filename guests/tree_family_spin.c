// Shows: processes share a megabyte ordered by a spin lock of their own atomics, talk through pipes, and fork one more later.
// Breaks if: a standby of one of them sees the memory as another process has it at another moment, or a kill loses or repeats what one wrote there.
// kit: tree
// kit: family the end of one standby is the end of all
// kit: allow unprotected memory that a child shares and that is newer than its parent's standby costs that standby
// kit: allow standby_lost the same
// kit: stale a recorded group has no family: a standby beside a recording sees the memory as it was
// kit: serial one thread at a time: its threads, or processes, do to each other what no lock orders
#include "guest.h"
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { CHILDREN = 3, ROUNDS = 150, CELLS = 1024 };

struct shared {
    atomic_int lock;
    long count;
    long by[CHILDREN + 1];
    uint64_t sum;
    uint64_t cells[CELLS];
    char room[1 << 20];
};

static void locked(struct shared *s)
{
    for (int spins = 0; atomic_exchange_explicit(&s->lock, 1, memory_order_acquire); spins++)
        if (spins % 64 == 63)
            guest_pause_us(100);
}

static void unlocked(struct shared *s)
{
    atomic_store_explicit(&s->lock, 0, memory_order_release);
}

/* Each step reads what everybody has done so far. */
static long step(struct shared *s, int me, int r)
{
    locked(s);
    long n = s->count++;
    s->by[me]++;
    uint64_t before = s->cells[(n + CELLS - 1) % CELLS];
    s->cells[n % CELLS] = before + guest_mix((uint64_t)n);
    s->room[guest_mix((uint64_t)n) % sizeof s->room]++;
    s->sum += guest_mix((uint64_t)(me * ROUNDS + r));
    unlocked(s);
    return n;
}

static void child(struct shared *s, int me, int from, int to)
{
    char token;
    for (int r = 0; r < ROUNDS; r++) {
        if (r % 10 == 0)
            guest_read_all(from, &token, 1);
        long n = step(s, me, r);
        CHECK(n >= r);
        if (r % 10 == 9)
            guest_write_all(to, &n, sizeof n);
        guest_pause_us(1000);
    }
    _exit(me);
}

static pid_t make(struct shared *s, int me, int tokens[2], int answers[2])
{
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        child(s, me, tokens[0], answers[1]);
    return pid;
}

int main(void)
{
    int tokens[2], answers[2], status;
    long n, last[2] = {0};
    struct shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(s != MAP_FAILED && pipe(tokens) == 0 && pipe(answers) == 0);
    for (int c = 0; c < CHILDREN; c++)
        make(s, c, tokens, answers);
    int all = (CHILDREN + 1) * (ROUNDS / 10);
    for (int t = 0; t < all; t++) {
        if (t == all / 3)
            make(s, CHILDREN, tokens, answers);
        guest_write_all(tokens[1], "t", 1);
        guest_read_all(answers[0], &n, sizeof n);
        last[0] = n > last[0] ? n : last[0];
    }
    int codes = 0;
    for (int c = 0; c <= CHILDREN; c++) {
        CHECK(waitpid(-1, &status, 0) > 0 && WIFEXITED(status));
        codes += 1 << WEXITSTATUS(status);
    }
    CHECK(codes == (1 << (CHILDREN + 1)) - 1);
    CHECK(s->count == (CHILDREN + 1) * ROUNDS);
    uint64_t cell = 0, sum = 0;
    long rooms = 0;
    for (long i = 0; i < s->count; i++) {
        cell += guest_mix((uint64_t)i);
        CHECK(s->cells[i % CELLS] == cell);
        sum += guest_mix((uint64_t)i);
    }
    for (size_t i = 0; i < sizeof s->room; i++)
        rooms += s->room[i];
    CHECK(rooms == s->count && s->sum == sum && last[0] == s->count - 1);
    for (int c = 0; c <= CHILDREN; c++)
        CHECK(s->by[c] == ROUNDS);
    printf("steps %ld\n", s->count);
    return guest_ok();
}
