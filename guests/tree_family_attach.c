// Shows: processes that share memory by its name, which children open and map for themselves, later than others; what they find there decides what they do.
// Breaks if: the standby of a process that maps such memory later than others sees another content than its primary, or what was written there behind a failover is lost.
// kit: tree
// kit: family the end of one standby is the end of all
// kit: allow unprotected memory that a child shares and that is newer than its parent's standby costs that standby
// kit: allow standby_lost the same
// kit: stale a recorded group has no family: a standby beside a recording sees the memory as it was
// kit: serial one thread at a time: its threads, or processes, do to each other what no lock orders
#include "guest.h"
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { GENERATIONS = 6, PAIR = 2, ROUNDS = 40, CELLS = 256 };

struct shared {
    atomic_int lock;
    long count;
    uint64_t cells[CELLS];
    char room[1 << 20];
};

/* "kept" is mapped by the parent all the time, "left" only by children, and by nobody in between. */
static const char *names[] = {"kept", "left"};
static char paths[2][64];

static struct shared *attach(int which, int flags)
{
    int fd = shm_open(paths[which], flags | O_RDWR, 0600);
    CHECK(fd >= 0 && ftruncate(fd, sizeof(struct shared)) == 0);
    struct shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(s != MAP_FAILED && close(fd) == 0);
    return s;
}

/* What is there decides which calls are made, and how many. */
static void step(struct shared *s)
{
    for (int spins = 0; atomic_exchange_explicit(&s->lock, 1, memory_order_acquire); spins++)
        if (spins % 64 == 63)
            guest_pause_us(100);
    long n = s->count++;
    uint64_t cell = s->cells[(n + CELLS - 1) % CELLS] + guest_mix((uint64_t)n);
    s->cells[n % CELLS] = cell;
    s->room[guest_mix((uint64_t)n) % sizeof s->room]++;
    if (cell % 3 == 0)
        CHECK(getppid() > 0);
    if (n % 2)
        guest_pause_us(50);
    atomic_store_explicit(&s->lock, 0, memory_order_release);
}

static void child(int to)
{
    struct shared *s[2];
    for (int i = 0; i < 2; i++)
        s[i] = attach(i, 0);
    for (int r = 0; r < ROUNDS; r++) {
        step(s[r % 2]);
        guest_pause_us(500);
    }
    guest_write_all(to, "d", 1);
    _exit(0);
}

static void check(struct shared *s)
{
    uint64_t cell = 0;
    long rooms = 0;
    CHECK(s->count == GENERATIONS * PAIR * ROUNDS / 2);
    for (long i = 0; i < s->count; i++) {
        cell += guest_mix((uint64_t)i);
        CHECK(i < s->count - CELLS || s->cells[i % CELLS] == cell);
    }
    for (size_t i = 0; i < sizeof s->room; i++)
        rooms += s->room[i];
    CHECK(rooms == s->count);
}

int main(void)
{
    int done[2], status;
    char token;

    CHECK(pipe(done) == 0);
    for (int i = 0; i < 2; i++) {
        snprintf(paths[i], sizeof paths[i], "/guest-%s-%d", names[i], (int)getpid());
        /* Left behind by one with the same number that was killed. */
        shm_unlink(paths[i]);
    }
    struct shared *kept = attach(0, O_CREAT | O_EXCL);
    CHECK(munmap(attach(1, O_CREAT | O_EXCL), sizeof *kept) == 0);
    for (int g = 0; g < GENERATIONS; g++) {
        for (int c = 0; c < PAIR; c++) {
            pid_t pid = fork();
            CHECK(pid >= 0);
            if (pid == 0)
                child(done[1]);
        }
        for (int c = 0; c < PAIR; c++)
            guest_read_all(done[0], &token, 1);
        for (int c = 0; c < PAIR; c++)
            CHECK(waitpid(-1, &status, 0) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
        /* Somebody is to see the parent's memory as the children have left it. */
        guest_pause_us(kept->count % 3 ? 20000 : 10000);
    }
    check(kept);
    struct shared *left = attach(1, 0);
    check(left);
    for (int i = 0; i < 2; i++)
        CHECK(shm_unlink(paths[i]) == 0);
    printf("steps %ld\n", kept->count + left->count);
    return guest_ok();
}
