// What the ledger counts: one operation again and again, between two marks. Arguments: the operation. Prints where the
// marks are, and waits for a byte before it begins.
#define _GNU_SOURCE
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { WARM = 300, COUNTED = 24 };

__attribute__((noinline, noclone)) void mark(void) { __asm__ volatile(""); }
__attribute__((noinline, noclone)) void done(void) { __asm__ volatile(" "); }

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static sem_t semaphore;
static int ends[2], pipe_ends[2], zero, null, file, ready, set;
static char bytes[16384];

static void check(int holds, const char *what)
{
    if (!holds) {
        perror(what);
        exit(1);
    }
}

/* Both ends of a connection. */
static void connect_ends(void)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    check(bind(listener, (struct sockaddr *)&at, sizeof at) == 0 && listen(listener, 1) == 0, "listen");
    check(getsockname(listener, (struct sockaddr *)&at, &len) == 0, "getsockname");
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    check(connect(ends[0], (struct sockaddr *)&at, sizeof at) == 0, "connect");
    ends[1] = accept(listener, NULL, NULL);
    check(ends[1] >= 0 && close(listener) == 0, "accept");
}

static void nothing(void) {}
static void on_lock(void) { check(pthread_mutex_lock(&lock) == 0 && pthread_mutex_unlock(&lock) == 0, "lock"); }
static void on_rwlock(void) { check(pthread_rwlock_rdlock(&rwlock) == 0 && pthread_rwlock_unlock(&rwlock) == 0, "rwlock"); }
static void on_semaphore(void) { check(sem_post(&semaphore) == 0 && sem_wait(&semaphore) == 0, "semaphore"); }
static void on_getppid(void) { check(syscall(SYS_getppid) > 0, "getppid"); }
static void on_read(void) { check(read(zero, bytes, 64) == 64, "read"); }
static void on_read_large(void) { check(read(zero, bytes, sizeof bytes) == sizeof bytes, "read"); }
static void on_write(void) { check(write(null, bytes, 64) == 64, "write"); }
static void on_send(void) { check(send(ends[0], bytes, 64, 0) == 64, "send"); }
static void on_recv(void) { check(recv(ends[1], bytes, 64, 0) == 64, "recv"); }
static void on_sendmsg(void)
{
    struct iovec parts[2] = { { bytes, 32 }, { bytes + 32, 32 } };
    struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
    check(sendmsg(ends[0], &message, 0) == 64, "sendmsg");
}
static void on_recvmsg(void)
{
    struct iovec parts[2] = { { bytes, 32 }, { bytes + 32, 32 } };
    struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
    check(recvmsg(ends[1], &message, 0) == 64, "recvmsg");
}
static void on_writev(void)
{
    struct iovec parts[2] = { { bytes, 32 }, { bytes + 32, 32 } };
    check(writev(ends[0], parts, 2) == 64, "writev");
}
static void on_readv(void)
{
    struct iovec parts[2] = { { bytes, 32 }, { bytes + 32, 32 } };
    check(readv(ends[1], parts, 2) == 64, "readv");
}
static void on_nothing_there(void) { check(recv(ends[1], bytes, 64, MSG_DONTWAIT) == -1, "recv of nothing"); }
static void on_pipe_write(void) { check(write(pipe_ends[1], bytes, 64) == 64, "write to a pipe"); }
static void on_pipe_read(void) { check(read(pipe_ends[0], bytes, 64) == 64, "read from a pipe"); }
static void on_pread(void) { check(pread(file, bytes, 64, 0) == 64, "pread"); }
static void on_pwrite(void) { check(pwrite(file, bytes, 64, 0) == 64, "pwrite"); }
static void on_fstat(void)
{
    struct stat status;
    check(fstat(file, &status) == 0, "fstat");
}
static void on_open(void) { check(close(open("/dev/null", O_RDONLY | O_CLOEXEC)) == 0, "open and close"); }
static void on_control(void)
{
    struct epoll_event event = { .events = EPOLLIN };
    check(epoll_ctl(set, EPOLL_CTL_MOD, ready, &event) == 0, "epoll_ctl");
}
static void on_poll(void)
{
    struct pollfd one = { .fd = ready, .events = POLLIN };
    check(poll(&one, 1, 0) == 1, "poll");
}
static void on_epoll(void)
{
    struct epoll_event event;
    check(epoll_wait(set, &event, 1, 0) == 1, "epoll_wait");
}
static void on_clock(void)
{
    struct timespec now;
    check(clock_gettime(CLOCK_MONOTONIC, &now) == 0, "clock");
}

static const struct {
    const char *name;
    void (*before)(void);
    void (*counted)(void);
    void (*after)(void);
} calls[] = {
    { "lock", nothing, on_lock, nothing },       { "rwlock", nothing, on_rwlock, nothing },
    { "semaphore", nothing, on_semaphore, nothing }, { "clock", nothing, on_clock, nothing },
    { "getppid", nothing, on_getppid, nothing }, { "read64", nothing, on_read, nothing },
    { "read16k", nothing, on_read_large, nothing }, { "write64", nothing, on_write, nothing },
    { "send64", nothing, on_send, on_recv },     { "recv64", on_send, on_recv, nothing },
    { "epoll", nothing, on_epoll, nothing },     { "control", nothing, on_control, nothing },
    { "poll", nothing, on_poll, nothing },       { "sendmsg64", nothing, on_sendmsg, on_recv },
    { "recvmsg64", on_send, on_recvmsg, nothing }, { "writev64", nothing, on_writev, on_recv },
    { "readv64", on_send, on_readv, nothing },   { "recv0", nothing, on_nothing_there, nothing },
    { "pipe_w64", nothing, on_pipe_write, on_pipe_read }, { "pipe_r64", on_pipe_write, on_pipe_read, nothing },
    { "pread64", nothing, on_pread, nothing },   { "pwrite64", nothing, on_pwrite, nothing },
    { "fstat", nothing, on_fstat, nothing },     { "openclose", nothing, on_open, nothing },
};

static void *sleeper(void *argument)
{
    pause();
    return argument;
}

int main(int count, char **arguments)
{
    pthread_t thread;
    char token;
    size_t at = 0;

    check(count == 2, "usage: calls OPERATION");
    while (at < sizeof calls / sizeof *calls && strcmp(calls[at].name, arguments[1]) != 0)
        at++;
    check(at < sizeof calls / sizeof *calls, "no such operation");
    zero = fileno(fopen("/dev/zero", "r"));
    null = fileno(fopen("/dev/null", "w"));
    connect_ends();
    set = epoll_create1(0);
    ready = eventfd(1, 0);
    file = memfd_create("ledger", 0);
    check(file >= 0 && ftruncate(file, sizeof bytes) == 0 && pipe(pipe_ends) == 0, "a file and a pipe");
    struct epoll_event event = { .events = EPOLLIN };
    check(set >= 0 && ready >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, ready, &event) == 0, "epoll_ctl");
    check(sem_init(&semaphore, 0, 0) == 0, "sem_init");
    // Locks are ordered from the second thread on.
    check(pthread_create(&thread, NULL, sleeper, NULL) == 0, "pthread_create");
    for (int i = 0; i < WARM; i++) {
        calls[at].before();
        calls[at].counted();
        calls[at].after();
    }
    printf("%p %p\n", (void *)mark, (void *)done);
    fflush(stdout);
    check(read(0, &token, 1) == 1, "read a token");
    for (int i = 0; i < COUNTED; i++) {
        calls[at].before();
        mark();
        calls[at].counted();
        done();
        calls[at].after();
    }
    _exit(0);
}
