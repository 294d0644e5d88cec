/* A stand-in for the runtime that speaks the supervisor's side of the protocol and nothing else: the
 * standby waits at the constructor and, when promoted, runs the program from its beginning.
 * Offsets into the segment come from the build (-D). STAND_IN chooses what goes wrong. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <signal.h>

enum { STARTING, PROTECTED, UNPROTECTED, PROMOTING };
enum { FOLLOW, PROMOTE, END, CLONE, PARK };
enum { LEAVING_EXIT = 1, SLOT_RUNNING = 2, CAUSE_DIVERGED = 2, CAUSE_PROMOTED = 6, CAUSE_CANNOT_CLONE = 7, CAUSE_CANNOT_REPLAY };

static char *base;
static int is_primary;

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

/* Makes a standby of the running program: a fork in a signal handler keeps its one thread where it is. */
static void clone_again(void) {
    if (mode("barren")) {
        say(CLONE_ERROR, CAUSE_CANNOT_CLONE, "a thread could not be parked");
        WORD(CLONE_FAILURES)++;
        WORD(COMMAND) = FOLLOW;
        return attention();
    }
    WORD(COMMAND) = FOLLOW;
    long pid = syscall(SYS_clone, CLONE_FILES | CLONE_SYSVSEM | CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
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

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("UNDERSTUDY_SEGMENT");
    if (!path || mode("silent")) return;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    base = mmap(0, SEGMENT, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
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
