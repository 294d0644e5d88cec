// A thread's own operations on pipes, sockets, files, time and signals, each of which checks itself: for guests that mix them at random.
#ifndef MEDLEY_H
#define MEDLEY_H

#include "guest.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>

enum { THREADS = 6, OPERATIONS = 400, FILE_BYTES = 4096, BULK = 9000 };

/* A thread's own: no other one looks at it. */
struct worker {
    uint64_t state;
    char folder[32];
    int at, file;
    unsigned signals;
    unsigned char model[FILE_BYTES];
    unsigned char bytes[BULK], back[BULK];
};

static struct worker workers[THREADS];
static __thread struct worker *own;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static sem_t places;
static long counted, written, moved;

static unsigned below(struct worker *w, unsigned limit)
{
    w->state = w->state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(w->state >> 33) % limit;
}

static void fill(struct worker *w, size_t count)
{
    for (size_t i = 0; i < count; i++)
        w->bytes[i] = (unsigned char)below(w, 256);
}

/* A call that a handler may interrupt. */
#define AGAIN(call) \
    ({ \
        long result_; \
        while ((result_ = (long)(call)) < 0 && errno == EINTR) \
            ; \
        result_; \
    })

static void path_of(struct worker *w, char *path, const char *name)
{
    snprintf(path, 64, "%s/%s", w->folder, name);
}

/* How a child has ended. */
#define ends_of(child) \
    ({ \
        int status_; \
        RETURNS(AGAIN(waitpid(child, &status_, 0)), child); \
        status_; \
    })

/* --- pipes, sockets --- */

static void *writes_all(void *arg)
{
    struct { int fd; size_t count; unsigned char *bytes; } *job = arg;
    guest_write_all(job->fd, job->bytes, job->count);
    return NULL;
}

static void passes(struct worker *w, int from, int to)
{
    struct { int fd; size_t count; unsigned char *bytes; } job = { from, 1 + below(w, BULK), w->bytes };
    fill(w, job.count);
    pthread_t writer = guest_start(writes_all, &job);
    for (size_t at = 0; at < job.count;) {
        long got = AGAIN(read(to, w->back + at, 1 + below(w, (unsigned)(job.count - at))));
        CHECK(got > 0);
        at += (size_t)got;
    }
    guest_join(writer);
    ZERO(memcmp(w->bytes, w->back, job.count));
}

static void pipe_passes(struct worker *w)
{
    int ends[2];
    ZERO(pipe2(ends, O_CLOEXEC));
    passes(w, ends[1], ends[0]);
    ZERO(close(ends[0]) + close(ends[1]));
}

static void pair_passes(struct worker *w)
{
    int ends[2];
    ZERO(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
    int side = (int)below(w, 2);
    passes(w, ends[side], ends[!side]);
    ZERO(close(ends[0]) + close(ends[1]));
}

static void *echoes(void *arg)
{
    unsigned char bytes[512];
    long got;
    int fd = (int)AGAIN(accept4((int)guest_num(arg), NULL, NULL, SOCK_CLOEXEC));
    CHECK(fd >= 0);
    while ((got = AGAIN(read(fd, bytes, sizeof bytes))) > 0)
        guest_write_all(fd, bytes, (size_t)got);
    ZERO(got);
    ZERO(close(fd));
    return NULL;
}

static void tcp_echoes(struct worker *w)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ZERO(bind(listener, (struct sockaddr *)&address, length));
    ZERO(listen(listener, 1));
    ZERO(getsockname(listener, (struct sockaddr *)&address, &length));
    pthread_t other = guest_start(echoes, guest_ptr(listener));
    ZERO(AGAIN(connect(fd, (struct sockaddr *)&address, length)));
    for (int turn = 0; turn < 4; turn++) {
        size_t count = 1 + below(w, 400);
        fill(w, count);
        RETURNS(AGAIN(send(fd, w->bytes, count, 0)), (long)count);
        guest_read_all(fd, w->back, count);
        ZERO(memcmp(w->bytes, w->back, count));
    }
    ZERO(shutdown(fd, SHUT_WR));
    guest_join(other);
    ZERO(AGAIN(recv(fd, w->back, 1, 0)));
    ZERO(close(fd) + close(listener));
}

static void datagrams(struct worker *w)
{
    int ends[2];
    ZERO(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends));
    fill(w, 600);
    for (unsigned i = 0; i < 5; i++)
        RETURNS(AGAIN(send(ends[0], w->bytes + i, 100 + i, 0)), 100 + i);
    for (unsigned i = 0; i < 5; i++) {
        RETURNS(AGAIN(recv(ends[1], w->back, BULK, 0)), 100 + i);
        ZERO(memcmp(w->back, w->bytes + i, 100 + i));
    }
    FAILS(recv(ends[1], w->back, BULK, MSG_DONTWAIT), EAGAIN);
    ZERO(close(ends[0]) + close(ends[1]));
}

static void udp_passes(struct worker *w)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ZERO(bind(fd, (struct sockaddr *)&address, length));
    ZERO(getsockname(fd, (struct sockaddr *)&address, &length));
    size_t count = below(w, 1000);
    fill(w, count);
    RETURNS(AGAIN(sendto(fd, w->bytes, count, 0, (struct sockaddr *)&address, length)), (long)count);
    RETURNS(AGAIN(recv(fd, w->back, BULK, 0)), (long)count);
    ZERO(memcmp(w->back, w->bytes, count));
    ZERO(close(fd));
}

static void descriptor_sent(struct worker *w)
{
    int ends[2], inner[2], got;
    char byte, letter = (char)below(w, 128);
    union { struct cmsghdr head; char room[CMSG_SPACE(sizeof(int))]; } control;
    struct iovec vector = { &byte, 1 };
    struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control };
    ZERO(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
    ZERO(pipe2(inner, O_CLOEXEC));
    byte = letter;
    control.head = (struct cmsghdr){ CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
    memcpy(CMSG_DATA(&control.head), &inner[0], sizeof(int));
    RETURNS(AGAIN(sendmsg(ends[0], &message, 0)), 1);
    memset(&control, 0, sizeof control);
    message.msg_controllen = sizeof control;
    RETURNS(AGAIN(recvmsg(ends[1], &message, MSG_CMSG_CLOEXEC)), 1);
    CHECK(byte == letter && CMSG_FIRSTHDR(&message) != NULL);
    memcpy(&got, CMSG_DATA(&control.head), sizeof(int));
    RETURNS(AGAIN(write(inner[1], "q", 1)), 1);
    RETURNS(AGAIN(read(got, &byte, 1)), 1);
    CHECK(byte == 'q');
    ZERO(close(ends[0]) + close(ends[1]) + close(inner[0]) + close(inner[1]) + close(got));
}

/* --- files --- */

static void file_written(struct worker *w)
{
    size_t at = below(w, FILE_BYTES), count = 1 + below(w, (unsigned)(FILE_BYTES - at));
    fill(w, count);
    memcpy(w->model + at, w->bytes, count);
    if (below(w, 2)) {
        RETURNS(AGAIN(pwrite(w->file, w->bytes, count, (off_t)at)), (long)count);
    } else {
        struct iovec vectors[] = { { w->bytes, count / 2 }, { w->bytes + count / 2, count - count / 2 } };
        RETURNS(lseek(w->file, (off_t)at, SEEK_SET), (off_t)at);
        RETURNS(AGAIN(writev(w->file, vectors, 2)), (long)count);
        RETURNS(lseek(w->file, 0, SEEK_CUR), (off_t)(at + count));
    }
}

static void file_read(struct worker *w)
{
    size_t at = below(w, FILE_BYTES), count = 1 + below(w, (unsigned)(FILE_BYTES - at));
    if (below(w, 2)) {
        RETURNS(AGAIN(pread(w->file, w->back, count, (off_t)at)), (long)count);
    } else {
        struct iovec vectors[] = { { w->back, count / 3 }, { w->back + count / 3, count - count / 3 } };
        RETURNS(AGAIN(preadv(w->file, vectors, 2, (off_t)at)), (long)count);
    }
    ZERO(memcmp(w->back, w->model + at, count));
}

static void names_moved(struct worker *w)
{
    char one[64], two[64], seen[64] = "";
    struct stat about;
    path_of(w, one, "one");
    path_of(w, two, "two");
    int fd = open(one, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    ZERO(close(fd));
    FAILS(open(one, O_CREAT | O_EXCL | O_RDWR, 0600), EEXIST);
    ZERO(rename(one, two));
    FAILS(access(one, F_OK), ENOENT);
    ZERO(link(two, one));
    ZERO(stat(one, &about));
    CHECK(about.st_nlink == 2);
    ZERO(unlink(one));
    ZERO(symlink(two, one));
    RETURNS(readlink(one, seen, sizeof seen), (long)strlen(two));
    ZERO(strcmp(seen, two));
    ZERO(unlink(one) + unlink(two));
}

static void folder_listed(struct worker *w)
{
    char path[64], name[8];
    int seen = 0, count = 1 + (int)below(w, 5);
    path_of(w, path, "inner");
    ZERO(mkdir(path, 0700));
    int folder = open(path, O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "f%d", i);
        int fd = openat(folder, name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        CHECK(fd >= 0);
        ZERO(close(fd));
    }
    DIR *dir = opendir(path);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        seen += entry->d_name[0] == 'f';
    CHECK(seen == count);
    ZERO(closedir(dir));
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "f%d", i);
        ZERO(unlinkat(folder, name, 0));
    }
    ZERO(close(folder));
    ZERO(rmdir(path));
}

static void change_noticed(struct worker *w)
{
    char path[64];
    union { struct inotify_event event; char room[sizeof(struct inotify_event) + 256]; } told;
    int fd = inotify_init1(IN_CLOEXEC);
    CHECK(fd >= 0 && inotify_add_watch(fd, w->folder, IN_CREATE) >= 0);
    path_of(w, path, "noticed");
    int file = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    CHECK(file >= 0);
    CHECK(AGAIN(read(fd, &told, sizeof told)) > 0);
    CHECK(told.event.mask == IN_CREATE && strcmp(told.event.name, "noticed") == 0);
    ZERO(unlink(path) + close(file) + close(fd));
}

static void locks_taken(struct worker *w)
{
    char path[64];
    path_of(w, path, "locked");
    int one = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600), two = open(path, O_RDWR | O_CLOEXEC);
    CHECK(one >= 0 && two >= 0);
    if (below(w, 2)) {
        ZERO(flock(one, LOCK_EX));
        FAILS(flock(two, LOCK_EX | LOCK_NB), EWOULDBLOCK);
        ZERO(flock(one, LOCK_UN));
        ZERO(flock(two, LOCK_EX | LOCK_NB));
        ZERO(flock(two, LOCK_UN));
    } else {
        struct flock range = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10 };
        ZERO(fcntl(one, F_OFD_SETLK, &range));
        FAILS(fcntl(two, F_OFD_SETLK, &range), EAGAIN);
        range.l_type = F_UNLCK;
        ZERO(fcntl(one, F_OFD_SETLK, &range));
    }
    ZERO(close(one) + close(two) + unlink(path));
}

static void file_sent(struct worker *w)
{
    int ends[2];
    off_t at = (off_t)below(w, FILE_BYTES / 2);
    size_t count = 1 + below(w, FILE_BYTES / 2 - 1);
    ZERO(pipe2(ends, O_CLOEXEC));
    off_t place = at;
    RETURNS(AGAIN(sendfile(ends[1], w->file, &place, count)), (long)count);
    CHECK(place == at + (off_t)count);
    guest_read_all(ends[0], w->back, count);
    ZERO(memcmp(w->back, w->model + at, count));
    ZERO(close(ends[0]) + close(ends[1]));
}

static void memory_file(struct worker *w)
{
    int fd = memfd_create("medley", MFD_CLOEXEC);
    size_t count = 1 + below(w, 3000);
    fill(w, count);
    RETURNS(AGAIN(write(fd, w->bytes, count)), (long)count);
    ZERO(ftruncate(fd, (off_t)(count / 2)));
    RETURNS(AGAIN(pread(fd, w->back, BULK, 0)), (long)(count / 2));
    ZERO(memcmp(w->back, w->bytes, count / 2));
    ZERO(close(fd));
}

static void numbers_given(struct worker *w)
{
    int fd = dup(w->file), far = fcntl(w->file, F_DUPFD_CLOEXEC, 200 + 20 * w->at);
    CHECK(fd >= 0 && far >= 200 + 20 * w->at);
    RETURNS(dup3(w->file, far, O_CLOEXEC), far);
    CHECK(fcntl(far, F_GETFD) == FD_CLOEXEC && fcntl(fd, F_GETFD) == 0);
    RETURNS(AGAIN(pread(far, w->back, 64, 100)), 64);
    ZERO(memcmp(w->back, w->model + 100, 64));
    ZERO(close(fd) + close(far));
}

/* --- time, events, signals --- */

static void sleeps(struct worker *w)
{
    struct timespec until = guest_deadline(CLOCK_MONOTONIC, 1000 * (1 + (long)below(w, 8)));
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        ;
    CHECK(guest_now_ns(CLOCK_MONOTONIC) >= (int64_t)until.tv_sec * 1000000000 + until.tv_nsec);
}

static void times_out(struct worker *w)
{
    int ends[2], ms = 1 + (int)below(w, 6);
    ZERO(pipe2(ends, O_CLOEXEC));
    struct pollfd poll_for = { .fd = ends[0], .events = POLLIN };
    int64_t before = guest_now_ns(CLOCK_MONOTONIC);
    if (below(w, 2)) {
        ZERO(AGAIN(poll(&poll_for, 1, ms)));
        CHECK((guest_now_ns(CLOCK_MONOTONIC) - before) / 1000000 >= ms - 1);
    }
    RETURNS(AGAIN(write(ends[1], "x", 1)), 1);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[0], &set);
    RETURNS(AGAIN(select(ends[0] + 1, &set, NULL, NULL, NULL)), 1);
    CHECK(FD_ISSET(ends[0], &set));
    RETURNS(AGAIN(poll(&poll_for, 1, -1)), 1);
    CHECK(poll_for.revents == POLLIN);
    ZERO(close(ends[0]) + close(ends[1]));
}

static void events_waited(struct worker *w)
{
    uint64_t value = 1 + below(w, 9), got;
    int set = epoll_create1(EPOLL_CLOEXEC), event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    struct epoll_event of_event = { .events = EPOLLIN, .data.u32 = 1 }, of_timer = { .events = EPOLLIN, .data.u32 = 2 }, told;
    struct itimerspec soon = { .it_value.tv_nsec = 1000000 * (1 + below(w, 5)) };
    ZERO(epoll_ctl(set, EPOLL_CTL_ADD, event, &of_event) + epoll_ctl(set, EPOLL_CTL_ADD, timer, &of_timer));
    RETURNS(AGAIN(write(event, &value, 8)), 8);
    RETURNS(AGAIN(epoll_wait(set, &told, 1, -1)), 1);
    CHECK(told.data.u32 == 1);
    RETURNS(AGAIN(read(event, &got, 8)), 8);
    CHECK(got == value);
    ZERO(timerfd_settime(timer, 0, &soon, NULL));
    RETURNS(AGAIN(epoll_wait(set, &told, 1, -1)), 1);
    CHECK(told.data.u32 == 2);
    RETURNS(AGAIN(read(timer, &got, 8)), 8);
    CHECK(got == 1);
    FAILS(read(event, &got, 8), EAGAIN);
    ZERO(close(timer) + close(event) + close(set));
}

static void on_signal(int signal)
{
    (void)signal;
    own->signals++;
}

static void signal_handled(struct worker *w)
{
    unsigned before = w->signals, count = 1 + below(w, 4);
    for (unsigned i = 0; i < count; i++)
        ZERO(pthread_kill(pthread_self(), SIGUSR1));
    CHECK(w->signals == before + count);
}

static void signal_taken(struct worker *w)
{
    sigset_t set;
    siginfo_t info;
    int value = (int)below(w, 1000);
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 1);
    ZERO(pthread_sigqueue(pthread_self(), SIGRTMIN + 1, (union sigval){ .sival_int = value }));
    RETURNS(AGAIN(sigwaitinfo(&set, &info)), SIGRTMIN + 1);
    CHECK(info.si_code == SI_QUEUE && info.si_value.sival_int == value);
    struct timespec soon = { 0, 2000000 };
    FAILS(AGAIN(sigtimedwait(&set, &info, &soon)), EAGAIN);
}

static void timer_tells(struct worker *w)
{
    timer_t timer;
    sigset_t set;
    siginfo_t info;
    struct sigevent event = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN + 1, .sigev_value.sival_int = 77 };
    struct itimerspec soon = { .it_value.tv_nsec = 1000000 * (1 + below(w, 5)) };
    event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 1);
    ZERO(timer_create(CLOCK_MONOTONIC, &event, &timer));
    ZERO(timer_settime(timer, 0, &soon, NULL));
    RETURNS(AGAIN(sigwaitinfo(&set, &info)), SIGRTMIN + 1);
    CHECK(info.si_code == SI_TIMER && info.si_value.sival_int == 77);
    ZERO(timer_delete(timer));
}

#endif
