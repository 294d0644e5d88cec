// Shows: shared anonymous memory with a process-shared mutex: parent and two children change the same counters under it.
// Breaks if: a store of one process is not seen by the others, or a copy stores a second time what its other copy has stored.
// kit: tree
// kit: allow unprotected memory that a child shares and that is newer than its parent's standby costs that standby
#include "guest.h"
#include <sys/mman.h>
#include <sys/wait.h>

enum { CHILDREN = 2, ROUNDS = 350 };

struct box {
    pthread_mutex_t lock;
    long total;
    long of[CHILDREN + 1];
    unsigned char last[64];
};

static struct box *box;

static void change(int me, long r)
{
    ZERO(pthread_mutex_lock(&box->lock));
    CHECK(box->of[me] == r);
    long sum = 0;
    for (int i = 0; i <= CHILDREN; i++)
        sum += box->of[i];
    CHECK(box->total == sum);
    for (size_t i = 1; i < sizeof box->last; i++)
        CHECK(box->last[i] == box->last[0]);
    box->of[me]++;
    box->total++;
    memset(box->last, me + 1, sizeof box->last);
    ZERO(pthread_mutex_unlock(&box->lock));
    guest_pause_us(1000 + me * 100);
}

int main(void)
{
    pthread_mutexattr_t attributes;
    pid_t pids[CHILDREN];
    int status;

    box = (struct box *)mmap(NULL, sizeof *box, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(box != MAP_FAILED);
    ZERO(pthread_mutexattr_init(&attributes));
    ZERO(pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED));
    ZERO(pthread_mutex_init(&box->lock, &attributes));
    for (int c = 0; c < CHILDREN; c++) {
        pids[c] = fork();
        CHECK(pids[c] >= 0);
        if (pids[c] == 0) {
            for (long r = 0; r < ROUNDS; r++)
                change(c, r);
            _exit(c);
        }
    }
    for (long r = 0; r < ROUNDS; r++)
        change(CHILDREN, r);
    for (int c = 0; c < CHILDREN; c++)
        CHECK(waitpid(pids[c], &status, 0) == pids[c] && WIFEXITED(status) && WEXITSTATUS(status) == c);
    printf("total %ld\n", box->total);
    CHECK(box->total == (CHILDREN + 1) * ROUNDS);
    ZERO(pthread_mutex_destroy(&box->lock));
    CHECK(munmap(box, sizeof *box) == 0);
    return guest_ok();
}
