// Shows: calls that do not wait never end with EINTR, however many signals come; calls that wait do, unless their handler restarts them.
// Breaks if: a signal that comes before a call is taken for one that came while it waited.
#include "guest.h"
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/msg.h>
#include <sys/random.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>

enum { ROUNDS = 60, BYTES = 4096 };

static volatile sig_atomic_t caught;

static void handler(int signal)
{
    (void)signal;
    caught++;
}

static int ends[2], stream[2], udp, listener, set, file, counter, timer, semaphore, queue;
static char bytes[BYTES];
static struct iovec vector = { bytes, 10 };

static long wait_for_any(void) { return waitpid(-1, NULL, WNOHANG); }
static long wait_by_id(void)
{
    siginfo_t info;
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG);
}
static long read_empty(void) { return read(ends[0], bytes, 10); }
static long readv_empty(void) { return readv(ends[0], &vector, 1); }
static long write_some(void) { return write(ends[1], bytes, 100); }
static long write_full(void) { return send(stream[1], bytes, BYTES, 0); }
static long receive(void) { return recv(udp, bytes, 10, MSG_DONTWAIT); }
static long receive_message(void)
{
    struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1 };
    return recvmsg(stream[0], &message, MSG_DONTWAIT);
}
static long take_connection(void) { return accept4(listener, NULL, NULL, 0); }
static long epoll_now(void)
{
    struct epoll_event event;
    return epoll_wait(set, &event, 1, 0);
}
static long sigwait_now(void)
{
    struct timespec now = { 0, 0 };
    sigset_t other;
    sigemptyset(&other);
    sigaddset(&other, SIGUSR2);
    return sigtimedwait(&other, NULL, &now);
}
static long read_file(void) { return pread(file, bytes, BYTES, 0); }
static long write_file(void) { return pwrite(file, bytes, BYTES, 0); }
static long lock_file(void) { return flock(file, LOCK_EX | LOCK_NB); }
static long lock_range(void)
{
    struct flock range = { .l_type = F_WRLCK };
    return fcntl(file, F_SETLK, &range);
}
static long synchronise(void) { return fdatasync(file); }
static long open_file(void)
{
    int fd = open("/dev/null", O_RDONLY);
    return fd < 0 ? fd : close(fd);
}
static long read_counter(void) { return read(counter, bytes, 8); }
static long read_timer(void) { return read(timer, bytes, 8); }
static long take_semaphore(void)
{
    struct sembuf take = { 0, -1, IPC_NOWAIT };
    return semop(semaphore, &take, 1);
}
static long take_message(void)
{
    struct { long type; char text[8]; } message;
    return msgrcv(queue, &message, 8, 0, IPC_NOWAIT);
}
static long random_bytes(void) { return getrandom(bytes, 64, 0); }

static const struct {
    const char *name;
    long (*call)(void);
} calls[] = {
    { "waitpid", wait_for_any },     { "waitid", wait_by_id },      { "read", read_empty },
    { "readv", readv_empty },        { "write", write_some },       { "send", write_full },
    { "recv", receive },             { "recvmsg", receive_message }, { "accept4", take_connection },
    { "epoll_wait", epoll_now },     { "sigtimedwait", sigwait_now }, { "pread", read_file },
    { "pwrite", write_file },        { "flock", lock_file },        { "F_SETLK", lock_range },
    { "fdatasync", synchronise },    { "open", open_file },         { "eventfd", read_counter },
    { "timerfd", read_timer },       { "semop", take_semaphore },   { "msgrcv", take_message },
    { "getrandom", random_bytes },
};

/* A signal before the call, from the timer while something is computed, and then the call at once. */
static void never(void)
{
    for (int r = 0; r < ROUNDS; r++)
        for (size_t at = 0; at < sizeof calls / sizeof calls[0]; at++) {
            guest_work(1, 3000);
            errno = 0;
            if (calls[at].call() < 0 && errno == EINTR)
                guest_fail(calls[at].name, __LINE__, "a call that does not wait was interrupted", EINTR);
        }
}

/* With and without SA_RESTART: what signal(7) says of a wait of each kind. */
static void waits(int flags)
{
    struct sigaction action = { .sa_handler = handler, .sa_flags = flags };
    /* Again and again: one that comes before the wait has begun ends nothing. */
    struct itimerval again = { { 0, 4000 }, { 0, 4000 } }, off = { { 0, 0 }, { 0, 0 } };
    struct timespec rest = { -1, -1 }, second = { 10, 0 };
    struct timeval time_out = { 10, 0 };
    struct epoll_event event;
    struct sembuf take = { 0, -1, 0 };
    struct { long type; char text[8]; } message;
    int pair[2];

    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    CHECK(setitimer(ITIMER_REAL, &again, NULL) == 0);
    FAILS(nanosleep(&second, &rest), EINTR);
    CHECK(rest.tv_sec >= 0 && rest.tv_sec < 10);
    FAILS(poll(NULL, 0, 10000), EINTR);
    FAILS(epoll_wait(set, &event, 1, 10000), EINTR);
    FAILS(semop(semaphore, &take, 1), EINTR);
    FAILS(msgrcv(queue, &message, 8, 0, 0), EINTR);
    FAILS(pause(), EINTR);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    CHECK(setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &time_out, sizeof time_out) == 0);
    FAILS(recv(pair[0], bytes, 1, 0), EINTR);
    if (flags == 0)
        FAILS(recv(pair[1], bytes, 1, 0), EINTR);
    CHECK(setitimer(ITIMER_REAL, &off, NULL) == 0);
    CHECK(close(pair[0]) == 0 && close(pair[1]) == 0);
}

int main(void)
{
    struct sigaction action = { .sa_handler = handler };
    struct itimerval often = { { 0, 700 }, { 0, 700 } }, off = { { 0, 0 }, { 0, 0 } };
    struct sockaddr_in any = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    CHECK(pipe2(ends, O_NONBLOCK) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, stream) == 0);
    udp = socket(AF_INET, SOCK_DGRAM, 0);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(bind(udp, (struct sockaddr *)&any, sizeof any) == 0);
    CHECK(bind(listener, (struct sockaddr *)&any, sizeof any) == 0 && listen(listener, 1) == 0);
    set = epoll_create1(0);
    guest_scratch();
    struct guest_name name = guest_path("locked");
    file = open(name.s, O_RDWR | O_CREAT, 0600);
    CHECK(file >= 0 && unlink(name.s) == 0);
    guest_scratch_end();
    counter = eventfd(0, EFD_NONBLOCK);
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    semaphore = semget(IPC_PRIVATE, 1, 0600);
    queue = msgget(IPC_PRIVATE, 0600);
    CHECK(semaphore >= 0 && queue >= 0);
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    never();
    CHECK(setitimer(ITIMER_REAL, &off, NULL) == 0);
    CHECK(caught > 0);
    waits(0);
    waits(SA_RESTART);
    CHECK(semctl(semaphore, 0, IPC_RMID) == 0 && msgctl(queue, IPC_RMID, NULL) == 0);
    return guest_ok();
}
