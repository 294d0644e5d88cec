// Shows: three threads at a time make and wait for children of their own, by pid; the same with a thread that waits for another thread's child.
// Breaks if: a wait that is under way when its process goes on in its other copy finds no child, or another thread's.
#include "guest.h"
#include <sys/wait.h>

enum { THREADS = 3, ROUNDS = 12 };

static void live(int code)
{
    for (int s = 0; s < 12; s++)
        guest_pause_us(1500 + code % 3 * 300);
    _exit(code);
}

struct errand {
    pid_t pid;
    int code;
};

static void *wait_for(void *arg)
{
    struct errand *errand = (struct errand *)arg;
    int status;

    CHECK(waitpid(errand->pid, &status, 0) == errand->pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == errand->code);
    return NULL;
}

static void *run(void *arg)
{
    int me = (int)guest_num(arg);

    for (int r = 0; r < ROUNDS; r++) {
        struct errand mine = { 0, me * 20 + r }, others = { 0, me * 20 + r + 100 };
        mine.pid = fork();
        CHECK(mine.pid >= 0);
        if (mine.pid == 0)
            live(mine.code);
        others.pid = fork();
        CHECK(others.pid >= 0);
        if (others.pid == 0)
            live(others.code);
        pthread_t t = guest_start(wait_for, &others);
        wait_for(&mine);
        guest_join(t);
    }
    return NULL;
}

int main(void)
{
    pthread_t t[THREADS];

    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, guest_ptr(i));
    for (int i = 0; i < THREADS; i++)
        guest_join(t[i]);
    FAILS(waitpid(-1, NULL, 0), ECHILD);
    printf("children %d\n", 2 * THREADS * ROUNDS);
    return guest_ok();
}
