// Shows: a process-shared condition variable: turns go round among parent and two children, by signal, broadcast and timed wait.
// Breaks if: a sleeper is not woken by another process, or one whose process goes on in its other copy is forgotten.
// kit: tree
// kit: allow unprotected memory that a child shares and that is newer than its parent's standby costs that standby
#include "guest.h"
#include <sys/mman.h>
#include <sys/wait.h>

enum { MEMBERS = 3, ROUNDS = 200 };

struct box {
    pthread_mutex_t lock;
    pthread_cond_t turned;
    int turn;
    long passes;
};

static void take_turns(struct box *box, int me)
{
    for (long r = 0; r < ROUNDS; r++) {
        ZERO(pthread_mutex_lock(&box->lock));
        while (box->turn != me) {
            if (r % 3 == 0) {
                struct timespec until = guest_deadline(CLOCK_REALTIME, 20000000);
                ZERO(pthread_cond_timedwait(&box->turned, &box->lock, &until));
            } else {
                ZERO(pthread_cond_wait(&box->turned, &box->lock));
            }
        }
        CHECK(box->passes == r * MEMBERS + me);
        box->turn = (me + 1) % MEMBERS;
        box->passes++;
        ZERO(pthread_cond_broadcast(&box->turned));
        ZERO(pthread_mutex_unlock(&box->lock));
        if (me == 0)
            guest_pause_us(1500);
    }
}

int main(void)
{
    pthread_mutexattr_t ma;
    pthread_condattr_t ca;
    int status;
    struct box *box =
        (struct box *)mmap(NULL, sizeof *box, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(box != MAP_FAILED);
    ZERO(pthread_mutexattr_init(&ma));
    ZERO(pthread_mutexattr_setpshared(&ma, PTHREAD_PROCESS_SHARED));
    ZERO(pthread_mutex_init(&box->lock, &ma));
    ZERO(pthread_condattr_init(&ca));
    ZERO(pthread_condattr_setpshared(&ca, PTHREAD_PROCESS_SHARED));
    ZERO(pthread_cond_init(&box->turned, &ca));
    for (int m = 1; m < MEMBERS; m++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            take_turns(box, m);
            _exit(0);
        }
    }
    take_turns(box, 0);
    for (int m = 1; m < MEMBERS; m++)
        CHECK(waitpid(-1, &status, 0) > 0 && status == 0);
    printf("passes %ld\n", box->passes);
    CHECK(munmap(box, sizeof *box) == 0);
    return guest_ok();
}
