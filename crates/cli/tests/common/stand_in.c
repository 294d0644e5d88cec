/* A stand-in for the runtime that speaks the supervisor's side of the protocol and nothing else: the
 * standby waits at the constructor and, when promoted, runs the program from its beginning. A child joins as soon
 * as it is forked.
 * Offsets into the segment and the roster come from the build (-D). STAND_IN chooses what goes wrong. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <signal.h>

enum { STARTING, PROTECTED, UNPROTECTED, PROMOTING };
enum { FOLLOW, PROMOTE, END, CLONE, PARK };
enum { LEAVING_EXIT = 1, LEAVING_EXEC = 3, SLOT_RUNNING = 2, CAUSE_DIVERGED = 2, CAUSE_PROMOTED = 6, CAUSE_CANNOT_CLONE = 7,
       CAUSE_CANNOT_REPLAY, CAUSE_NEWBORN = 11 };
enum { FREE, TAKEN, LISTED };

static char *base;
static char *roster;
static int is_primary;
extern char **environ;

#define ROSTER_WORD(offset) (*(_Atomic uint32_t *)(roster + (offset)))
#define WORD(offset) (*(_Atomic uint32_t *)(base + (offset)))
#define LONG(offset) (*(_Atomic uint64_t *)(base + (offset)))

static struct {
    void *next;
    long offset;
    void *pending;
} robust;

static void wake(uint32_t offset) { syscall(SYS_futex, base + offset, FUTEX_WAKE, INT32_MAX, 0, 0, 0); }

static void attention(void) {
    WORD(ATTENTION)++;
    wake(ATTENTION);
}

static void say(uint32_t text_at, uint32_t cause, const char *text) {
    memcpy(base + text_at + TEXT_WORDS, text, strlen(text));
    WORD(text_at + TEXT_CODE) = cause;
    WORD(text_at + TEXT_LEN) = strlen(text);
}

static void say_why(uint32_t cause, const char *text) { say(WHY, cause, text); }

static int mode(const char *name) {
    const char *asked = getenv("STAND_IN");
    return asked && strcmp(asked, name) == 0;
}

static void give_notice(void);

static void follow(void) {
    /* A member's first parent is a process in between. */
    for (int i = 0; i < 10000 && (uint32_t)getppid() != WORD(SUPERVISOR_PID); i++) usleep(50);
    if (!mode("deaf")) prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* Its supervisor may have died before the line above. */
    if (!mode("deaf") && (uint32_t)getppid() != WORD(SUPERVISOR_PID)) _exit(9);
    if (mode("die")) _exit(9);
    if (mode("diverge")) {
        while (WORD(STATE) != PROTECTED) usleep(1000);
        say_why(CAUSE_DIVERGED, "write of 5 bytes differs");
        WORD(DROPPED) = 1;
        attention();
    }
    uint32_t command;
    while ((command = WORD(COMMAND)) != PROMOTE && command != END)
        syscall(SYS_futex, base + COMMAND, FUTEX_WAIT, command, 0, 0, 0);
    if (command == END || mode("refuse")) _exit(9);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    LONG(LIVE_NS) = now.tv_sec * 1000000000ull + now.tv_nsec;
    WORD(IN_DOUBT) = 1;
    WORD(STANDBY_PID) = 0;
    WORD(EPOCH)++;
    WORD(PRIMARY_PID) = getpid();
    if (!mode("mute")) give_notice();
    say_why(CAUSE_PROMOTED, "the standby was promoted");
    WORD(DROPPED) = 1;
    /* Half promoted, with somebody looking: not to be taken for a standby that was dropped. */
    attention();
    usleep(20000);
    WORD(STATE) = UNPROTECTED;
    is_primary = 1;
    attention();
}

static void give_notice(void) {
    robust.next = base + THREADS + NOTICE_NEXT;
    robust.offset = -32;
    LONG(THREADS + NOTICE_NEXT) = (uint64_t)&robust;
    WORD(THREADS + NOTICE_WORD) = getpid();
    WORD(THREADS + PRIMARY_TID) = getpid();
    WORD(THREADS + THREAD_STATE) = SLOT_RUNNING;
    syscall(SYS_set_robust_list, &robust, sizeof robust);
    WORD(SLOTS) = 1;
}

/* A copy that is nobody's child but, by way of a process in between, the supervisor's. */
static long fork_away(void) {
    volatile long made = -1;
    long between = syscall(SYS_clone, CLONE_VM | CLONE_VFORK | CLONE_FILES, 0, 0, 0, 0);
    if (between == 0) {
        long pid = syscall(SYS_clone, CLONE_FILES, 0, 0, 0, 0);
        if (pid == 0) return 0;
        made = pid;
        _exit(0);
    }
    waitpid(between, 0, __WALL);
    return made;
}

/* Makes a standby of the running program: a fork in a signal handler keeps its one thread where it is. */
static void clone_again(void) {
    if (mode("barren")) {
        say(CLONE_ERROR, CAUSE_CANNOT_CLONE, "a thread could not be parked");
        WORD(CLONE_FAILURES)++;
        WORD(COMMAND) = FOLLOW;
        return attention();
    }
    long pid = (uint32_t)getppid() == WORD(SUPERVISOR_PID)
                   ? syscall(SYS_clone, CLONE_FILES | CLONE_SYSVSEM | CLONE_PARENT | SIGCHLD, 0, 0, 0, 0)
                   : fork_away();
    if (pid == 0) {
        is_primary = 0;
        return follow();
    }
    WORD(WHY + TEXT_LEN) = WORD(WHY + TEXT_CODE) = 0;
    WORD(DROPPED) = 0;
    LONG(LIVE_NS) = LONG(DEATH_NS) = 0;
    WORD(STANDBY_PID) = pid;
    LONG(CLONE_PAUSE_NS) = 1234000;
    LONG(CLONE_BYTES) = 4096;
    WORD(COMMAND) = FOLLOW;
    WORD(CLONES)++;
    WORD(STATE) = PROTECTED;
    attention();
}

static void on_sigsys(int signal) {
    (void)signal;
    if (!is_primary || mode("busy")) return;
    if (WORD(COMMAND) == CLONE) clone_again();
    if (WORD(COMMAND) != PARK || mode("restless")) return;
    if (mode("unparkable")) {
        WORD(PARKED) = 2;
        say_why(CAUSE_CANNOT_REPLAY, "a planned failover was called off");
        WORD(DROPPED) = 1;
        WORD(STATE) = UNPROTECTED;
        return attention();
    }
    WORD(PARKED) = 1;
    attention();
    while (WORD(COMMAND) == PARK) syscall(SYS_futex, base + COMMAND, FUTEX_WAIT, PARK, 0, 0, 0);
}

static void *map(const char *path, size_t bytes, int flags) {
    int fd = open(path, O_RDWR | O_CLOEXEC | flags, 0600);
    if (fd < 0) return 0;
    if (flags) ftruncate(fd, bytes);
    void *at = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return at;
}

/* A file beside the group's first segment. */
static const char *beside(const char *name, int pid) {
    static char path[4096];
    const char *first = getenv("UNDERSTUDY_SEGMENT");
    int folder = strrchr(first, '/') - first;
    snprintf(path, sizeof path, pid ? "%.*s/%s.%d" : "%.*s/%s", folder, first, name, pid);
    return path;
}

static void be_newborn(void) {
    say_why(CAUSE_NEWBORN, "it has just been made");
    WORD(DROPPED) = CAUSE_NEWBORN;
    WORD(STATE) = UNPROTECTED;
    give_notice();
    is_primary = 1;
    signal(SIGSYS, on_sigsys);
}

static uint32_t take_entry(void) {
    for (uint32_t at = 0;; at++) {
        uint32_t entry = PROCESSES + at * PROCESS_BYTES;
        uint32_t free = FREE;
        if (!__atomic_compare_exchange_n((uint32_t *)(roster + entry + PROCESS_STATE), &free, TAKEN, 0, __ATOMIC_SEQ_CST,
                                         __ATOMIC_SEQ_CST))
            continue;
        uint32_t used = ROSTER_WORD(USED);
        while (used <= at && !__atomic_compare_exchange_n((uint32_t *)(roster + USED), &used, at + 1, 0, __ATOMIC_SEQ_CST,
                                                          __ATOMIC_SEQ_CST)) {}
        return entry;
    }
}

/* As what has just been forked by `parent`: onto the list, and into the group. */
static void join(uint32_t parent) {
    uint32_t pid = getpid(), entry = take_entry();
    ROSTER_WORD(entry + PROCESS_PID) = pid;
    ROSTER_WORD(entry + PROCESS_PARENT) = parent;
    ROSTER_WORD(entry + PROCESS_JOINED) = ROSTER_WORD(entry + PROCESS_KIN) = ROSTER_WORD(entry + PROCESS_END) = 0;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    *(_Atomic uint64_t *)(roster + entry + PROCESS_BORN_NS) = now.tv_sec * 1000000000ull + now.tv_nsec;
    ROSTER_WORD(entry + PROCESS_STATE) = LISTED;
    is_primary = 0;
    if (mode("solitary")) return;
    char *mine = map(beside("segment", pid), SEGMENT, O_CREAT | O_EXCL);
    if (!mine) return;
    memcpy(mine, base, CONFIG_END);
    uint32_t supervisor = WORD(SUPERVISOR_PID);
    munmap(base, SEGMENT);
    base = mine;
    WORD(SUPERVISOR_PID) = supervisor;
    WORD(ROOT_PID) = WORD(GUEST_PID) = WORD(PRIMARY_PID) = pid;
    be_newborn();
    ROSTER_WORD(entry + PROCESS_JOINED)++;
    ROSTER_WORD(NEWS)++;
    syscall(SYS_futex, roster + NEWS, FUTEX_WAKE, INT32_MAX, 0, 0, 0);
}

pid_t fork(void) {
    uint32_t parent = roster ? WORD(GUEST_PID) : 0;
    pid_t pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0 && roster) join(parent);
    return pid;
}

int execv(const char *path, char *const arguments[]) {
    if (base && is_primary) {
        WORD(LEAVING) = LEAVING_EXEC;
        /* The supervisor takes back what it has asked for. */
        attention();
        for (int i = 0; i < 100000 && WORD(COMMAND) == CLONE; i++) usleep(50);
        WORD(COMMAND) = END;
        wake(COMMAND);
        if (WORD(STANDBY_PID)) kill(WORD(STANDBY_PID), SIGKILL);
        WORD(STANDBY_PID) = 0;
        WORD(STATE) = STARTING;
        attention();
    }
    return syscall(SYS_execve, path, arguments, environ);
}

/* A member after an exec. */
static int comes_back(void) {
    char *mine = map(beside("segment", getpid()), SEGMENT, 0);
    if (!mine) return 0;
    base = mine;
    if (WORD(LEAVING) != LEAVING_EXEC) return 0;
    WORD(COMMAND) = FOLLOW;
    WORD(WHY + TEXT_LEN) = WORD(WHY + TEXT_CODE) = 0;
    be_newborn();
    WORD(LEAVING) = 0;
    attention();
    return 1;
}

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("UNDERSTUDY_SEGMENT");
    if (!path || mode("silent")) return;
    roster = map(beside("roster", 0), ROSTER, 0);
    if (comes_back()) return;
    base = map(path, SEGMENT, 0);
    if (WORD(ROOT_PID) != (uint32_t)getpid()) return;
    WORD(GUEST_PID) = WORD(PRIMARY_PID) = getpid();
    if (!mode("mute")) give_notice();
    is_primary = 1;
    signal(SIGSYS, on_sigsys);
    long pid = syscall(SYS_clone, CLONE_FILES | CLONE_SYSVSEM | CLONE_PARENT, 0, 0, 0, 0);
    if (pid == 0) {
        is_primary = 0;
        follow();
        return;
    }
    WORD(STANDBY_PID) = pid;
    WORD(STATE) = PROTECTED;
    attention();
}

__attribute__((destructor)) static void stop(void) {
    if (!base || !is_primary) return;
    WORD(LEAVING) = LEAVING_EXIT;
    WORD(COMMAND) = END;
    wake(COMMAND);
}
