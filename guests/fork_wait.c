// Shows: fork from a threaded program: pipes to the children, waitpid statuses (exit, signal), WNOHANG, SIGCHLD.
// Breaks if: the child's standby and the parent's mix up logs, or the parent's wait sees a standby.
#include "guest.h"
#include <signal.h>
#include <sys/wait.h>

enum { ROUNDS = 120 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int stop;

static void *busy(void *arg)
{
    (void)arg;
    for (int over = 0; !over; ) {
        ZERO(pthread_mutex_lock(&lock));
        over = stop;
        ZERO(pthread_mutex_unlock(&lock));
        guest_pause_us(100);
    }
    return NULL;
}

static void child(int r, int out)
{
    long n = r * 7;

    if (write(out, &n, sizeof n) != sizeof n)
        _exit(99);
    if (r % 3 == 2)
        raise(SIGKILL);
    _exit(r % 3 == 0 ? r : 200);
}

int main(void)
{
    pthread_t t = guest_start(busy, NULL);
    long sum = 0;

    FAILS(waitpid(-1, NULL, WNOHANG), ECHILD);
    for (int r = 0; r < ROUNDS; r++) {
        int ends[2], status;
        long n;
        CHECK(pipe(ends) == 0);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
            child(r, ends[1]);
        CHECK(close(ends[1]) == 0);
        guest_read_all(ends[0], &n, sizeof n);
        CHECK(n == r * 7 && read(ends[0], &n, 1) == 0);
        CHECK(close(ends[0]) == 0);
        CHECK(waitpid(pid, &status, 0) == pid);
        if (r % 3 == 2)
            CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        else
            CHECK(WIFEXITED(status) && WEXITSTATUS(status) == (r % 3 == 0 ? r : 200));
        sum += n;
    }
    FAILS(waitpid(-1, NULL, 0), ECHILD);
    ZERO(pthread_mutex_lock(&lock));
    stop = 1;
    ZERO(pthread_mutex_unlock(&lock));
    guest_join(t);
    printf("sum %ld\n", sum);
    return guest_ok();
}
