// Shows: an interval timer in the child and a POSIX timer in the parent, both ticking; neither is inherited, each counts for its own process.
// Breaks if: a timer stops with the process that set it, ticks in a copy, or its signal goes to another process.
// kit: tree
#include "guest.h"
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

enum { TICKS = 80 };

static volatile sig_atomic_t ticks;

static void on_tick(int signal)
{
    (void)signal;
    ticks++;
}

static void child(int out)
{
    struct sigaction act = { .sa_handler = on_tick };
    struct itimerval every = { { 0, 5000 }, { 0, 5000 } }, now;
    sigset_t block, open;

    CHECK(getitimer(ITIMER_REAL, &now) == 0 && now.it_value.tv_sec == 0 && now.it_value.tv_usec == 0);
    sigemptyset(&block);
    sigaddset(&block, SIGALRM);
    CHECK(sigprocmask(SIG_BLOCK, &block, &open) == 0);
    CHECK(sigaction(SIGALRM, &act, NULL) == 0 && setitimer(ITIMER_REAL, &every, NULL) == 0);
    for (int told = 0; told < TICKS; told++) {
        while (ticks <= told)
            FAILS(sigsuspend(&open), EINTR);
        guest_write_all(out, &told, sizeof told);
    }
    CHECK(setitimer(ITIMER_REAL, &(struct itimerval){ 0 }, NULL) == 0);
    _exit(0);
}

int main(void)
{
    struct sigevent how = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN };
    struct itimerspec every = { { 0, 4000000 }, { 0, 4000000 } };
    struct itimerval far = { { 0, 0 }, { 1000, 0 } };
    int ends[2], status, told;
    siginfo_t info;
    timer_t timer;
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    how.sigev_value.sival_int = 77;
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0 && pipe(ends) == 0);
    CHECK(setitimer(ITIMER_REAL, &far, NULL) == 0);
    CHECK(timer_create(CLOCK_MONOTONIC, &how, &timer) == 0 && timer_settime(timer, 0, &every, NULL) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        child(ends[1]);
    int64_t start = guest_now_ns(CLOCK_MONOTONIC);
    for (int t = 0; t < TICKS; t++) {
        CHECK(sigwaitinfo(&set, &info) == SIGRTMIN && info.si_code == SI_TIMER && info.si_value.sival_int == 77);
        guest_read_all(ends[0], &told, sizeof told);
        CHECK(told == t);
    }
    CHECK(guest_now_ns(CLOCK_MONOTONIC) - start > TICKS * 3000000ll);
    CHECK(timer_delete(timer) == 0 && setitimer(ITIMER_REAL, &(struct itimerval){ 0 }, &far) == 0);
    CHECK(far.it_value.tv_sec > 900);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    printf("ticks %d\n", TICKS);
    return guest_ok();
}
