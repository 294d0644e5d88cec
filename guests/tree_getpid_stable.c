// Shows: getpid, getppid, getpgrp, getsid and thread numbers of parent and child never change, and agree with what fork returned.
// Breaks if: a process sees the kernel's pid of the copy that it goes on in, or its parent's.
// kit: tree
// kit: no-checkpoint it begins in another process group and session
#include "guest.h"
#include <sys/syscall.h>
#include <sys/wait.h>

enum { ROUNDS = 300 };

struct numbers {
    pid_t pid, parent, group, session, main_thread, thread;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pid_t second_thread;
static int over;

static void *run(void *arg)
{
    pid_t mine = (pid_t)syscall(SYS_gettid);

    (void)arg;
    for (int stop = 0; !stop;) {
        CHECK(syscall(SYS_gettid) == mine && getpid() != mine);
        ZERO(pthread_mutex_lock(&lock));
        second_thread = (pid_t)syscall(SYS_gettid);
        stop = over;
        ZERO(pthread_mutex_unlock(&lock));
        guest_pause_us(700);
    }
    return NULL;
}

static struct numbers numbers(void)
{
    struct numbers n = { getpid(), getppid(), getpgrp(), getsid(0), gettid(), 0 };

    ZERO(pthread_mutex_lock(&lock));
    n.thread = second_thread;
    ZERO(pthread_mutex_unlock(&lock));
    return n;
}

static void child(int out)
{
    pthread_t t = guest_start(run, NULL);

    for (int r = 0; r < ROUNDS; r++) {
        struct numbers now = numbers();
        guest_write_all(out, &now, sizeof now);
        guest_pause_us(1500);
    }
    ZERO(pthread_mutex_lock(&lock));
    over = 1;
    ZERO(pthread_mutex_unlock(&lock));
    guest_join(t);
    _exit(0);
}

int main(void)
{
    struct numbers mine = numbers(), now;
    int ends[2], status;
    pid_t thread = 0;

    CHECK(pipe(ends) == 0 && mine.pid == mine.main_thread);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        child(ends[1]);
    for (int r = 0; r < ROUNDS; r++) {
        guest_read_all(ends[0], &now, sizeof now);
        CHECK(now.pid == pid && now.main_thread == pid && now.parent == mine.pid);
        CHECK(now.group == mine.group && now.session == mine.session);
        /* Once the second thread has a number, it keeps it. */
        CHECK(thread == 0 || now.thread == thread);
        thread = now.thread;
        now = numbers();
        CHECK(memcmp(&now, &mine, sizeof now) == 0);
        CHECK(getpgid(pid) == mine.group && getsid(pid) == mine.session);
    }
    CHECK(thread != 0);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    printf("rounds %d\n", ROUNDS);
    return guest_ok();
}
