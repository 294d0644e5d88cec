// Shows: a robust process-shared mutex: a child that ends with it leaves it to its parent, which hears EOWNERDEAD and mends it.
// Breaks if: a copy's death frees a mutex whose owner goes on, or the real owner's end is not told.
// kit: no-kill the kernel tells the others of the owner's death
// kit: allow unprotected memory that a child shares and that is newer than its parent's standby costs that standby
// kit: allow diverged a standby's copy of shared memory is not kept up to date
// kit: no-record the kernel frees robust mutexes by its own thread numbers, and a replay has the recorded ones
#include "guest.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { ROUNDS = 16, STEPS = 10 };

struct box {
    pthread_mutex_t lock;
    long halves[2]; /* equal whenever nobody holds the lock or it has been mended */
};

/* Takes and gives back for a while, and ends inside. */
static void child(struct box *box, int r, int locked, int go)
{
    char byte;

    for (int s = 0; s < STEPS; s++) {
        ZERO(pthread_mutex_lock(&box->lock));
        box->halves[0]++;
        guest_pause_us(300);
        box->halves[1]++;
        ZERO(pthread_mutex_unlock(&box->lock));
        guest_pause_us(1200);
    }
    ZERO(pthread_mutex_lock(&box->lock));
    box->halves[0]++;
    guest_write_all(locked, "l", 1);
    guest_read_all(go, &byte, 1);
    for (int s = 0; s < 5; s++)
        guest_pause_us(2000);
    if (r % 2 == 0)
        _exit(6);
    for (;;)
        pause();
}

int main(void)
{
    pthread_mutexattr_t ma;
    int locked[2], go[2];
    struct box *box =
        (struct box *)mmap(NULL, sizeof *box, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(box != MAP_FAILED && pipe(locked) == 0 && pipe(go) == 0);
    ZERO(pthread_mutexattr_init(&ma));
    ZERO(pthread_mutexattr_setpshared(&ma, PTHREAD_PROCESS_SHARED));
    ZERO(pthread_mutexattr_setrobust(&ma, PTHREAD_MUTEX_ROBUST));
    ZERO(pthread_mutex_init(&box->lock, &ma));
    for (int r = 0; r < ROUNDS; r++) {
        int status;
        char byte;
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
            child(box, r, locked[1], go[0]);
        guest_read_all(locked[0], &byte, 1);
        RETURNS(pthread_mutex_trylock(&box->lock), EBUSY);
        /* A byte that a killed child has not read would be its successor's. */
        if (r % 2)
            CHECK(kill(pid, SIGTERM) == 0);
        else
            guest_write_all(go[1], "g", 1);
        RETURNS(pthread_mutex_lock(&box->lock), EOWNERDEAD);
        CHECK(box->halves[0] == box->halves[1] + 1);
        box->halves[0]--;
        ZERO(pthread_mutex_consistent(&box->lock));
        ZERO(pthread_mutex_unlock(&box->lock));
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(r % 2 ? WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM : WEXITSTATUS(status) == 6);
    }
    printf("halves %ld %ld\n", box->halves[0], box->halves[1]);
    ZERO(pthread_mutex_destroy(&box->lock));
    CHECK(munmap(box, sizeof *box) == 0);
    return guest_ok();
}
