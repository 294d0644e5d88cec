// Shows: workers that are made one after the other, count in memory that they share under a lock there, compute between their calls,
// and map more of it; who has replaced them reads what they left.
// Breaks if: a standby or a recording does not know from which place on the log tells of that memory.
// kit: tree
// kit: allow unprotected memory that a child shares and that is newer than its parent's standby costs that standby
#include "guest.h"
#include <sys/mman.h>
#include <sys/wait.h>

enum { WORKERS = 4, ROUNDS = 60, SPIN = 100000 };

struct board {
    pthread_mutex_t lock;
    uint64_t sum, rounds;
    uint64_t of_worker[WORKERS];
};

static void *share(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(at != MAP_FAILED);
    return at;
}

/* Long enough for a standby to be made meanwhile, and short enough for many rounds. */
static uint64_t compute(uint64_t from)
{
    for (int i = 0; i < SPIN; i++)
        from = guest_mix(from + (uint64_t)i);
    return from;
}

static void work(struct board *board, struct board *later, int in, int out, int me)
{
    uint64_t round, told[2];

    while (read(in, &round, sizeof round) == (ssize_t)sizeof round) {
        uint64_t found = compute(round);
        ZERO(pthread_mutex_lock(&board->lock));
        told[0] = board->sum += found;
        board->rounds++;
        ZERO(pthread_mutex_unlock(&board->lock));
        found = compute(found);
        ZERO(pthread_mutex_lock(&later->lock));
        told[1] = later->of_worker[me] += found ^ board->rounds;
        ZERO(pthread_mutex_unlock(&later->lock));
        guest_write_all(out, told, sizeof told);
    }
    _exit(0);
}

static void make_lock(pthread_mutex_t *lock)
{
    pthread_mutexattr_t how;

    ZERO(pthread_mutexattr_init(&how));
    ZERO(pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED));
    ZERO(pthread_mutex_init(lock, &how));
}

int main(void)
{
    struct board *board = (struct board *)share(sizeof *board), *later = NULL;
    uint64_t digest = 0, told[2];
    int status;

    make_lock(&board->lock);
    for (int me = 0; me < WORKERS; me++) {
        int down[2], up[2];

        if (me % 2 == 0) {
            later = (struct board *)share(3 * sizeof *later);
            make_lock(&later->lock);
        }
        CHECK(pipe(down) == 0 && pipe(up) == 0);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            CHECK(close(down[1]) == 0 && close(up[0]) == 0);
            work(board, later, down[0], up[1], me);
        }
        CHECK(close(down[0]) == 0 && close(up[1]) == 0);
        for (uint64_t round = 0; round < ROUNDS; round++) {
            guest_write_all(down[1], &round, sizeof round);
            guest_read_all(up[0], told, sizeof told);
            ZERO(pthread_mutex_lock(&board->lock));
            CHECK(told[0] == board->sum && board->rounds == (uint64_t)me * ROUNDS + round + 1);
            ZERO(pthread_mutex_unlock(&board->lock));
            CHECK(told[1] == later->of_worker[me]);
            digest = guest_mix(digest ^ told[0] ^ told[1]);
        }
        CHECK(close(down[1]) == 0 && waitpid(pid, &status, 0) == pid && status == 0 && close(up[0]) == 0);
        if (me % 2)
            CHECK(munmap(later, 3 * sizeof *later) == 0);
    }
    printf("rounds %lu, sum %016lx, digest %016lx\n", (unsigned long)board->rounds, (unsigned long)board->sum, (unsigned long)digest);
    return guest_ok();
}
