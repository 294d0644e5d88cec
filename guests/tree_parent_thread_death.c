// Shows: a child that wants a signal at its parent's death, made by a thread that is not the first, outlives failovers of its parent.
// Breaks if: the kernel's word that the maker's thread is gone, while others of that process are still about to die, passes for a
// signal of the program's own: the child is ended by SIGSYS.
// kit: tree
#include "guest.h"
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { ROUNDS = 220, OTHERS = 8 };

static int over;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *lives_on(void *arg)
{
    for (int is_over = 0; !is_over; guest_pause_us(300)) {
        ZERO(pthread_mutex_lock(&lock));
        is_over = over;
        ZERO(pthread_mutex_unlock(&lock));
    }
    return arg;
}

static void child(int in, int out)
{
    long n;
    int signal = 0;

    CHECK(prctl(PR_SET_PDEATHSIG, SIGTERM) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        guest_read_all(in, &n, sizeof n);
        CHECK(prctl(PR_GET_PDEATHSIG, &signal) == 0 && signal == SIGTERM);
        guest_write_all(out, &n, sizeof n);
    }
    _exit(7);
}

static void *makes(void *arg)
{
    int down[2], up[2], status;
    long n;

    CHECK(pipe(down) == 0 && pipe(up) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        child(down[0], up[1]);
    for (long r = 0; r < ROUNDS; r++) {
        guest_write_all(down[1], &r, sizeof r);
        guest_read_all(up[0], &n, sizeof n);
        CHECK(n == r);
        guest_pause_us(1500);
    }
    RETURNS(waitpid(pid, &status, 0), pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    return arg;
}

int main(void)
{
    pthread_t others[OTHERS];

    for (int i = 0; i < OTHERS; i++)
        others[i] = guest_start(lives_on, guest_ptr(i));
    guest_join(guest_start(makes, NULL));
    ZERO(pthread_mutex_lock(&lock));
    over = 1;
    ZERO(pthread_mutex_unlock(&lock));
    for (int i = 0; i < OTHERS; i++)
        guest_join(others[i]);
    return guest_ok();
}
