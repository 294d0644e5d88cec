// Shows: two threads fork children and talk with them, while others take locks and allocate; each waits for its own child.
// Breaks if: a child gets a lock, a ring or a standby of one of the threads that it has not, or takes the other thread's child's end.
// kit: tree
#include "guest.h"
#include <sys/wait.h>

enum { FORKERS = 2, BUSY = 2, ROUNDS = 12, STEPS = 15 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long work_done;
static int over;

static void *busy(void *arg)
{
    (void)arg;
    for (int stop = 0; !stop;) {
        char *memory = (char *)malloc(500);
        CHECK(memory);
        memset(memory, 1, 500);
        ZERO(pthread_mutex_lock(&lock));
        work_done += memory[499];
        stop = over;
        ZERO(pthread_mutex_unlock(&lock));
        free(memory);
        guest_pause_us(300);
    }
    return NULL;
}

static void child(int in, int out, long code)
{
    long n, sum = 0;

    while (read(in, &n, sizeof n) == sizeof n) {
        char *memory = (char *)malloc(1000);
        CHECK(memory);
        sum += n;
        guest_write_all(out, &sum, sizeof sum);
        free(memory);
    }
    _exit((int)code);
}

static void *forker(void *arg)
{
    long me = guest_num(arg);

    for (long r = 0; r < ROUNDS; r++) {
        int down[2], up[2], status;
        long sum = 0, answer;
        CHECK(pipe2(down, O_CLOEXEC) == 0 && pipe2(up, O_CLOEXEC) == 0);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            CHECK(close(down[1]) == 0 && close(up[0]) == 0);
            child(down[0], up[1], me * 50 + r);
        }
        CHECK(close(down[0]) == 0 && close(up[1]) == 0);
        for (long n = 0; n < STEPS; n++) {
            guest_write_all(down[1], &n, sizeof n);
            sum += n;
            guest_read_all(up[0], &answer, sizeof answer);
            CHECK(answer == sum);
            guest_pause_us(1500);
        }
        /* Half a number says that it is enough: an end of file might wait for the other forker's child. */
        CHECK(write(down[1], "!", 1) == 1 && close(down[1]) == 0 && close(up[0]) == 0);
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == me * 50 + r);
    }
    return NULL;
}

int main(void)
{
    pthread_t t[FORKERS], b[BUSY];

    for (int i = 0; i < BUSY; i++)
        b[i] = guest_start(busy, NULL);
    for (int i = 0; i < FORKERS; i++)
        t[i] = guest_start(forker, guest_ptr(i));
    for (int i = 0; i < FORKERS; i++)
        guest_join(t[i]);
    ZERO(pthread_mutex_lock(&lock));
    over = 1;
    ZERO(pthread_mutex_unlock(&lock));
    for (int i = 0; i < BUSY; i++)
        guest_join(b[i]);
    CHECK(work_done > 0);
    FAILS(waitpid(-1, NULL, 0), ECHILD);
    printf("children %d\n", FORKERS * ROUNDS);
    return guest_ok();
}
