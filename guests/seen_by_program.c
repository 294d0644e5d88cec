// Shows: what a program asks about itself is its own: descriptors, environment, dispositions, mask, alternate stack, children, timers, attributes, limits, usage.
// Breaks if: a descriptor, a handler, a child, a timer, a limit or a variable of the runtime's shows, before a failover or behind it.
// kit: no-checkpoint its parent, and the group and session that it began in, are others
#include "guest.h"
#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>

enum { ROUNDS = 40, SIGNALS = 64 };

extern char **environ;
static volatile sig_atomic_t children_told;

static void on_child(int signal)
{
    children_told += signal == SIGCHLD;
}

static int has_handler(int signal)
{
    struct sigaction action;

    CHECK(sigaction(signal, NULL, &action) == 0);
    return action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN;
}

/* Descriptors that are open, but for the one that looks. */
static int descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;

    CHECK(dir);
    for (struct dirent *entry; (entry = readdir(dir));)
        count += entry->d_name[0] != '.' && atoi(entry->d_name) != dirfd(dir);
    CHECK(closedir(dir) == 0);
    return count;
}

static void ask_signals(void)
{
    sigset_t set;
    stack_t stack;

    for (int s = 1; s <= SIGNALS; s++)
        if (s != SIGCHLD && s != 32 && s != 33)
            CHECK(!has_handler(s));
    CHECK(sigprocmask(SIG_BLOCK, NULL, &set) == 0 && sigisemptyset(&set));
    CHECK(sigpending(&set) == 0 && sigisemptyset(&set));
    CHECK(sigaltstack(NULL, &stack) == 0 && stack.ss_flags == SS_DISABLE);
    CHECK(children_told == 0);
}

static void ask_children(void)
{
    struct rusage usage;
    siginfo_t info;

    FAILS(waitpid(-1, NULL, WNOHANG), ECHILD);
    FAILS(waitid(P_ALL, 0, &info, WEXITED | WSTOPPED | WNOHANG | __WALL), ECHILD);
    CHECK(getrusage(RUSAGE_CHILDREN, &usage) == 0);
    CHECK(usage.ru_utime.tv_sec == 0 && usage.ru_utime.tv_usec == 0 && usage.ru_maxrss == 0);
}

static void ask_attributes(const char *name)
{
    char text[16];
    int value = -1;

    CHECK(prctl(PR_GET_NAME, text) == 0 && strcmp(text, name) == 0);
    CHECK(prctl(PR_GET_PDEATHSIG, &value) == 0 && value == 0);
    CHECK(prctl(PR_GET_CHILD_SUBREAPER, &value) == 0 && value == 0);
    CHECK(prctl(PR_GET_SECCOMP) == 0);
    CHECK(prctl(PR_GET_KEEPCAPS) == 0);
    for (char **variable = environ; *variable; variable++)
        CHECK(strncmp(*variable, "UNDERSTUDY_SEGMENT", 18) != 0
            && (strncmp(*variable, "LD_PRELOAD", 10) != 0 || !strstr(*variable, "libunderstudy")));
}

static void ask_timers(void)
{
    static const int kinds[] = { ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF };
    struct itimerval timer;

    for (int i = 0; i < 3; i++)
        CHECK(getitimer(kinds[i], &timer) == 0 && timer.it_value.tv_sec == 0 && timer.it_value.tv_usec == 0);
    CHECK(alarm(0) == 0);
}

int main(void)
{
    struct rlimit limits[RLIM_NLIMITS], limit;
    char name[16];
    struct sigaction told = { .sa_handler = on_child };
    int slack = prctl(PR_GET_TIMERSLACK), dumpable = prctl(PR_GET_DUMPABLE), nice = getpriority(PRIO_PROCESS, 0);
    int policy = sched_getscheduler(0), flags = fcntl(1, F_GETFL), open_before = descriptors();
    pid_t parent = getppid(), group = getpgrp(), session = getsid(0);
    cpu_set_t before, now;

    for (int r = 0; r < (int)RLIM_NLIMITS; r++)
        CHECK(getrlimit(r, &limits[r]) == 0);
    CHECK(prctl(PR_GET_NAME, name) == 0 && !has_handler(SIGCHLD) && sigaction(SIGCHLD, &told, NULL) == 0);
    CHECK(sched_getaffinity(0, sizeof before, &before) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        ask_signals();
        ask_children();
        ask_attributes(name);
        ask_timers();
        CHECK(descriptors() == open_before);
        CHECK(getppid() == parent && getpgrp() == group && getsid(0) == session);
        CHECK(prctl(PR_GET_TIMERSLACK) == slack && prctl(PR_GET_DUMPABLE) == dumpable && fcntl(1, F_GETFL) == flags);
        CHECK(getpriority(PRIO_PROCESS, 0) == nice && sched_getscheduler(0) == policy);
        CHECK(sched_getaffinity(0, sizeof now, &now) == 0 && CPU_EQUAL(&before, &now));
        for (int l = 0; l < (int)RLIM_NLIMITS; l++) {
            CHECK(getrlimit(l, &limit) == 0);
            CHECK(limit.rlim_cur == limits[l].rlim_cur && limit.rlim_max == limits[l].rlim_max);
        }
        guest_pause_us(1500);
    }
    puts("ok");
    return 0;
}
