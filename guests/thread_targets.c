// Shows: two threads that signal, ask about, name and schedule the same third thread, which ends meanwhile in half of the rounds.
// Breaks if: a standby waits for its turn with a lock of libc's in hand, or what it does depends on how far its own third thread has come.
#include "guest.h"
#include <sched.h>
#include <signal.h>

enum { ROUNDS = 8, STEPS = 12 };

static pthread_t target;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int stop;
static volatile sig_atomic_t got;

static void handler(int signal)
{
    (void)signal;
    got++;
}

static int is_over(void)
{
    ZERO(pthread_mutex_lock(&lock));
    int is = stop;
    ZERO(pthread_mutex_unlock(&lock));
    return is;
}

static void *work(void *arg)
{
    while (!is_over())
        guest_pause_us(100);
    return arg;
}

/* What may be said of a thread that has ended and has not been joined. */
static void signals(void)
{
    ZERO(pthread_kill(target, SIGUSR1));
    ZERO(pthread_kill(target, 0));
    RETURNS(pthread_kill(target, 32), EINVAL);
}

/* And of one that runs. */
static void questions(void)
{
    struct sched_param param = { 0 };
    int policy;
    cpu_set_t set;
    clockid_t clock;
    char name[16];
    struct timespec used;

    signals();
    RETURNS(pthread_kill(target, 6543), EINVAL);
    ZERO(pthread_sigqueue(target, SIGUSR1, (union sigval){ .sival_int = 7 }));
    ZERO(pthread_getschedparam(target, &policy, &param));
    ZERO(pthread_setschedparam(target, SCHED_OTHER, &param));
    ZERO(pthread_setschedprio(target, 0));
    CHECK(policy == SCHED_OTHER);
    ZERO(pthread_getaffinity_np(target, sizeof set, &set));
    ZERO(pthread_setaffinity_np(target, sizeof set, &set));
    ZERO(pthread_setname_np(target, "third"));
    ZERO(pthread_getname_np(target, name, sizeof name));
    CHECK(strcmp(name, "third") == 0);
    ZERO(pthread_getcpuclockid(target, &clock));
    CHECK(clock_gettime(clock, &used) == 0 && clock_getres(clock, &used) == 0);
    FAILS(clock_gettime((clockid_t)-99994, &used), EINVAL);
    RETURNS(pthread_tryjoin_np(target, NULL), EBUSY);
}

static void *ask(void *arg)
{
    for (int i = 0; i < STEPS; i++) {
        if (arg)
            signals();
        else
            questions();
        guest_pause_us(300);
    }
    return arg;
}

int main(void)
{
    struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART };
    sigset_t set;
    long joins = 0;

    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        pthread_t t[2];

        stop = 0;
        target = guest_start(work, guest_ptr(r));
        ZERO(pthread_sigmask(SIG_BLOCK, &set, NULL));
        for (int i = 0; i < 2; i++)
            t[i] = guest_start(ask, guest_ptr(r % 2));
        ZERO(pthread_sigmask(SIG_UNBLOCK, &set, NULL));
        if (r % 2)
            guest_pause_us(1000);
        else
            for (int i = 0; i < 2; i++)
                guest_join(t[i]);
        ZERO(pthread_mutex_lock(&lock));
        stop = 1;
        ZERO(pthread_mutex_unlock(&lock));
        for (int i = 0; r % 2 && i < 2; i++)
            guest_join(t[i]);
        void *result = NULL;
        struct timespec soon = guest_deadline(CLOCK_REALTIME, r % 4 * 50);
        int rc = pthread_timedjoin_np(target, &result, &soon);
        CHECK(rc == 0 || rc == ETIMEDOUT);
        while (rc != 0) {
            rc = pthread_tryjoin_np(target, &result);
            CHECK(rc == 0 || rc == EBUSY);
            guest_pause_us(100);
        }
        joins += guest_num(result);
    }
    CHECK(got > 0);
    printf("joined %ld\n", joins);
    return guest_ok();
}
