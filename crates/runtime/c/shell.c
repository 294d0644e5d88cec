/* What `popen`, `pclose` and `system` do between two locks (src/door/shell.rs): in C, for the types of libc's that have no layout of
 * their own in Rust. Each function says who may call it. Errors are in errno, as libc's callers expect them.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define HIDDEN __attribute__((visibility("hidden")))

/* The library wants no symbols of libc's but those that find others (tests/tidy/tests/symbols.rs), and what a program or a sanitizer
 * has put in front of these is not what libc's own functions would call. `posix_spawn` has had another meaning before 2.15. */
#define FUNCTIONS(F, V) \
    F(close) F(fcntl) F(fdopen) F(fileno) F(kill) F(pipe2) F(waitpid) F(pthread_setcancelstate) \
    F(sigaction) F(sigaddset) F(sigemptyset) F(sigprocmask) \
    V(posix_spawn, "GLIBC_2.15") F(posix_spawn_file_actions_addclose) F(posix_spawn_file_actions_adddup2) \
    F(posix_spawn_file_actions_destroy) F(posix_spawn_file_actions_init) F(posix_spawnattr_destroy) \
    F(posix_spawnattr_init) F(posix_spawnattr_setflags) F(posix_spawnattr_setsigdefault) F(posix_spawnattr_setsigmask)

static struct {
#define PLACE(name, ...) __typeof__(name) *name;
    FUNCTIONS(PLACE, PLACE)
    /* The program's own. */
    __typeof__(malloc) *malloc;
    __typeof__(free) *free;
    char ***environ;
} libc;

/* In the constructor, as for the functions behind the doors. */
HIDDEN void us_shell_find(void)
{
#define FIND(name) libc.name = dlsym(RTLD_NEXT, #name);
#define FIND_VERSION(name, version) libc.name = dlvsym(RTLD_NEXT, #name, version);
    FUNCTIONS(FIND, FIND_VERSION)
    libc.malloc = dlsym(RTLD_DEFAULT, "malloc");
    libc.free = dlsym(RTLD_DEFAULT, "free");
    libc.environ = dlsym(RTLD_DEFAULT, "environ");
}

/* A child of `popen`, and how it is made. */
struct us_child {
    struct us_child *next;
    FILE *stream;
    const char *command;
    posix_spawn_file_actions_t actions;
    /* The child's end of the pipe, and where the child has it. */
    int end, as;
    int keeps;
    pid_t pid;
};

/* Those whose streams are open. Changed and walked with the door's lock. */
static struct us_child *children;

static pid_t ask_shell(pid_t *pid, const char *line, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *how)
{
    char *const words[] = { "sh", "-c", (char *)line, NULL };

    return libc.posix_spawn(pid, "/bin/sh", actions, how, words, *libc.environ);
}

/* Waits for a process: its number, or -1. A cancellation point. */
static pid_t await_end(pid_t pid, int *status)
{
    pid_t ended;

    do {
        ended = libc.waitpid(pid, status, 0);
    } while (ended == -1 && errno == EINTR);
    return ended;
}

/* The same, and none. */
static pid_t await_end_uncancelled(pid_t pid, int *status)
{
    int state;
    pid_t ended;

    libc.pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    ended = await_end(pid, status);
    libc.pthread_setcancelstate(state, NULL);
    return ended;
}

/* A pipe and its stream; NULL with errno. Without a lock. */
HIDDEN struct us_child *us_child_new(const char *command, const char *mode)
{
    int reads = 0, writes = 0, keeps = 1, ends[2];
    struct us_child *child;

    for (; *mode; mode++) {
        switch (*mode) {
        case 'r':
            reads = 1;
            break;
        case 'w':
            writes = 1;
            break;
        case 'e':
            keeps = 0;
            break;
        default:
            errno = EINVAL;
            return NULL;
        }
    }
    if (reads == writes) {
        errno = EINVAL;
        return NULL;
    }
    child = libc.malloc(sizeof *child);
    if (!child)
        return NULL;
    if (libc.pipe2(ends, O_CLOEXEC))
        goto no_pipe;
    /* The child writes what its parent reads. */
    child->end = ends[reads];
    child->as = reads;
    child->stream = libc.fdopen(ends[!reads], reads ? "r" : "w");
    child->command = command;
    child->keeps = keeps;
    if (!child->stream)
        goto no_stream;
    libc.posix_spawn_file_actions_init(&child->actions);
    if (libc.posix_spawn_file_actions_adddup2(&child->actions, child->end, child->as) == 0)
        return child;
    libc.posix_spawn_file_actions_destroy(&child->actions);
no_stream:
    libc.close(ends[0]);
    libc.close(ends[1]);
no_pipe:
    libc.free(child);
    return NULL;
}

/* Makes the process, without the streams of its elder siblings: 0 or an error. Inside the door's domain. */
HIDDEN int us_child_spawn(struct us_child *child)
{
    int error = 0;

    for (struct us_child *elder = children; elder && !error; elder = elder->next) {
        int fd = libc.fileno(elder->stream);

        if (fd != child->as)
            error = libc.posix_spawn_file_actions_addclose(&child->actions, fd);
    }
    if (!error)
        error = ask_shell(&child->pid, child->command, &child->actions, NULL);
    libc.posix_spawn_file_actions_destroy(&child->actions);
    libc.close(child->end);
    if (!error && child->keeps)
        libc.fcntl(libc.fileno(child->stream), F_SETFD, 0);
    return error;
}

/* Its stream from now on. Inside the domain, with the lock. */
HIDDEN FILE *us_child_list(struct us_child *child)
{
    child->next = children;
    children = child;
    return child->stream;
}

/* Gives up one that has not become a process: NULL, and errno. Without a lock. */
HIDDEN FILE *us_child_undo(struct us_child *child, int error, int (*close_stream)(FILE *))
{
    close_stream(child->stream);
    libc.free(child);
    errno = error;
    return NULL;
}

/* Where the child of a stream hangs; what hangs there is NULL if it is none. With the lock. */
static struct us_child **child_of(const FILE *stream)
{
    struct us_child **at = &children;

    while (*at && (*at)->stream != stream)
        at = &(*at)->next;
    return at;
}

/* Whether it is the stream of a child. With the lock. */
HIDDEN int us_child_is(const FILE *stream)
{
    return *child_of(stream) != NULL;
}

/* Takes the child of a stream off the list; NULL if it is none. Inside the domain, with the lock. */
HIDDEN struct us_child *us_child_take(const FILE *stream)
{
    struct us_child **at = child_of(stream), *child = *at;

    if (child)
        *at = child->next;
    return child;
}

/* Closes the stream of one that has been taken off, and waits for the process, as `pclose` answers. Without a lock. */
HIDDEN int us_child_close(struct us_child *child, int (*close_stream)(FILE *))
{
    pid_t pid = child->pid;
    int closed = close_stream(child->stream), status;

    libc.free(child);
    if (closed && errno == EBADF)
        return -1;
    if (await_end_uncancelled(pid, &status) == -1)
        return -1;
    return status ? status : closed;
}

/* A call of `system`. */
struct us_system {
    const char *line;
    pid_t pid;
    int error, status;
    sigset_t mask;
};
_Static_assert(sizeof(struct us_system) <= 256, "src/door/shell.rs gives so much");

/* What SIGINT and SIGQUIT did before the first of those who are in it, and how many those are. Inside the domain. */
static struct sigaction interrupt, quit;
static int users;

/* Of whoever comes in. Inside the domain. */
HIDDEN void us_system_begin(void)
{
    const struct sigaction ignored = { .sa_handler = SIG_IGN };

    if (users++)
        return;
    libc.sigaction(SIGINT, &ignored, &interrupt);
    libc.sigaction(SIGQUIT, &ignored, &quit);
}

/* Of whoever leaves. Inside the domain. */
HIDDEN void us_system_end(void)
{
    if (--users)
        return;
    libc.sigaction(SIGINT, &interrupt, NULL);
    libc.sigaction(SIGQUIT, &quit, NULL);
}

/* Makes the process. Without a lock. */
HIDDEN void us_system_spawn(struct us_system *call)
{
    posix_spawnattr_t how;
    sigset_t blocked, reset;

    libc.sigemptyset(&blocked);
    libc.sigaddset(&blocked, SIGCHLD);
    libc.sigprocmask(SIG_BLOCK, &blocked, &call->mask);
    libc.sigemptyset(&reset);
    if (interrupt.sa_handler != SIG_IGN)
        libc.sigaddset(&reset, SIGINT);
    if (quit.sa_handler != SIG_IGN)
        libc.sigaddset(&reset, SIGQUIT);
    libc.posix_spawnattr_init(&how);
    libc.posix_spawnattr_setsigmask(&how, &call->mask);
    libc.posix_spawnattr_setsigdefault(&how, &reset);
    libc.posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    call->error = ask_shell(&call->pid, call->line, NULL, &how);
    libc.posix_spawnattr_destroy(&how);
    /* As if the shell had said that it cannot execute. */
    call->status = 127 << 8;
}

/* Waits for it: a cancellation point. Without a lock. */
HIDDEN void us_system_wait(struct us_system *call)
{
    if (!call->error && await_end(call->pid, &call->status) != call->pid)
        call->status = -1;
}

/* The thread was cancelled meanwhile: there is no process behind this. Without a lock. */
HIDDEN void us_system_kill(struct us_system *call)
{
    int before = errno;

    libc.kill(call->pid, SIGKILL);
    await_end_uncancelled(call->pid, NULL);
    errno = before;
}

/* The answer. Without a lock. */
HIDDEN int us_system_answer(struct us_system *call)
{
    libc.sigprocmask(SIG_SETMASK, &call->mask, NULL);
    if (call->error)
        errno = call->error;
    return call->status;
}
