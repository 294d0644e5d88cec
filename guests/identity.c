// Shows: getpid, gettid, getppid, getpgrp, getsid and raw system calls agree with each other and never change.
// Breaks if: the promoted copy answers with its own numbers, or a thread's id differs by the way it is asked for.
// kit: no-checkpoint its parent is another process
#include "guest.h"
#include <signal.h>
#include <sys/syscall.h>

enum { THREADS = 4, ROUNDS = 60 };

static pid_t pid, ppid;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pid_t tids[THREADS];

static void *run(void *arg)
{
    long me = guest_num(arg);
    pid_t tid = gettid();

    CHECK(tid != pid);
    ZERO(pthread_mutex_lock(&lock));
    for (int i = 0; i < THREADS; i++)
        CHECK(tids[i] != tid);
    tids[me] = tid;
    ZERO(pthread_mutex_unlock(&lock));
    for (int r = 0; r < ROUNDS; r++) {
        CHECK(gettid() == tid && syscall(SYS_gettid) == tid);
        CHECK(getpid() == pid && syscall(SYS_getpid) == pid);
        CHECK(getppid() == ppid);
        CHECK(getpgrp() == getpgid(0) && getpgid(pid) == getpgrp());
        CHECK(getsid(0) == getsid(pid));
        CHECK(kill(pid, 0) == 0 && tgkill(pid, tid, 0) == 0);
        CHECK(getuid() == geteuid() && getgid() == getegid());
        guest_pause_us(400);
    }
    return NULL;
}

int main(void)
{
    pthread_t t[THREADS];

    pid = getpid();
    ppid = getppid();
    CHECK(gettid() == pid);
    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, guest_ptr(i));
    for (int i = 0; i < THREADS; i++)
        guest_join(t[i]);
    CHECK(gettid() == pid && getpid() == pid);
    return guest_ok();
}
