// Shows: a process gives up its user and executes this program, which shares a large memory with two children: they count there
//        under a lock that processes share, and tell each other each count.
// Breaks if: processes whose user is not that of the group's files cannot take over together.
// kit: tree
// kit: allow unprotected memory that a child shares and that is newer than its parent's standby costs that standby
// kit: family the standbys take over together
// kit: stale a recorded group has no family: a standby beside a recording sees the memory as it was
// kit: serial one thread at a time: its processes do to each other what no lock orders
#include "guest.h"
#include <grp.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { NOBODY = 65534, ROUNDS = 150, CHILDREN = 2, BYTES = 4 << 20 };

struct shared {
    pthread_mutex_t lock;
    long count;
    char rest[BYTES - 128];
};

/* One after the other, as the pipes say. */
static void count(struct shared *shared, int child, int in, int out)
{
    long turn;

    for (long r = 0; r < ROUNDS; r++) {
        guest_read_all(in, &turn, sizeof turn);
        RETURNS(pthread_mutex_lock(&shared->lock), 0);
        CHECK(turn == shared->count && turn == r * CHILDREN + child);
        shared->count++;
        shared->rest[turn * 100] = (char)turn;
        turn = shared->count;
        RETURNS(pthread_mutex_unlock(&shared->lock), 0);
        guest_write_all(out, &turn, sizeof turn);
    }
}

static int executed(void)
{
    pthread_mutexattr_t kind;
    pid_t pids[CHILDREN];
    int ends[CHILDREN + 1][2], status;
    long turn = 0;
    struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(shared != MAP_FAILED);
    RETURNS(pthread_mutexattr_init(&kind), 0);
    RETURNS(pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED), 0);
    RETURNS(pthread_mutex_init(&shared->lock, &kind), 0);
    for (int p = 0; p <= CHILDREN; p++)
        CHECK(pipe(ends[p]) == 0);
    for (int c = 0; c < CHILDREN; c++) {
        pids[c] = fork();
        CHECK(pids[c] >= 0);
        if (pids[c] == 0) {
            count(shared, c, ends[c][0], ends[c + 1][1]);
            _exit(3);
        }
    }
    for (int r = 0; r < ROUNDS; r++) {
        guest_write_all(ends[0][1], &turn, sizeof turn);
        guest_read_all(ends[CHILDREN][0], &turn, sizeof turn);
        CHECK(turn == (r + 1) * CHILDREN && shared->rest[(turn - 1) * 100] == (char)(turn - 1));
        guest_pause_us(3000);
    }
    for (int c = 0; c < CHILDREN; c++)
        CHECK(waitpid(pids[c], &status, 0) == pids[c] && WIFEXITED(status) && WEXITSTATUS(status) == 3);
    printf("count %ld\n", shared->count);
    return guest_ok();
}

int main(int argc, char **argv)
{
    if (argc == 2)
        return executed();
    if (geteuid() == 0)
        CHECK(setgroups(0, NULL) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
    execl("/proc/self/exe", argv[0], "again", NULL);
    return 1;
}
