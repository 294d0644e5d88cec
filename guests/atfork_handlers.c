// Shows: pthread_atfork handlers take a lock around fork, so that the child finds the state whole; vfork and exec beside it.
// Breaks if: handlers run in the standby for the fork that it only reads about, or a vfork child writes the parent's ring.
#include "guest.h"
#include <sys/wait.h>

enum { ROUNDS = 40 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long a, b, prepared, parents;
static int stop;

static void prepare(void) { ZERO(pthread_mutex_lock(&lock)); prepared++; }
static void in_parent(void) { parents++; ZERO(pthread_mutex_unlock(&lock)); }
static void in_child(void) { ZERO(pthread_mutex_unlock(&lock)); }

static void *mutate(void *arg)
{
    (void)arg;
    for (int over = 0; !over; ) {
        ZERO(pthread_mutex_lock(&lock));
        a++;
        guest_pause_us(20); /* half done for most of the time */
        b++;
        over = stop;
        ZERO(pthread_mutex_unlock(&lock));
        guest_pause_us(50);
    }
    return NULL;
}

/* The child runs on this frame until it execs: a function of its own keeps it small. */
static pid_t __attribute__((noinline)) spawn_true(void)
{
    pid_t pid = vfork();

    if (pid == 0) {
        execlp("true", "true", (char *)NULL);
        _exit(99);
    }
    return pid;
}

int main(void)
{
    pthread_t t;

    ZERO(pthread_atfork(prepare, in_parent, in_child));
    t = guest_start(mutate, NULL);
    for (int r = 0; r < ROUNDS; r++) {
        int status;
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            pthread_mutex_lock(&lock);
            _exit(a == b ? 10 : 20);
        }
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 10);
        pid = spawn_true();
        CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
    }
    ZERO(pthread_mutex_lock(&lock));
    stop = 1;
    ZERO(pthread_mutex_unlock(&lock));
    guest_join(t);
    printf("prepared %ld, parents %ld\n", prepared, parents);
    CHECK(prepared == ROUNDS && parents == ROUNDS);
    return guest_ok();
}
