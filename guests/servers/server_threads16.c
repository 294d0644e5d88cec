// Shows: sixteen workers behind one queue that hold recursive, error-checking and robust mutexes, reader-writer
//        locks and semaphores, wait on conditions, and count in thread-local variables.
// Breaks if: a lock that is held, a wait or a thread-local variable does not survive a failover or a clone.
// Usage: server_threads16 PORT; runs until it is killed. A request is a number and an amount, 8 bytes each; the
// answer is the number, the connection's count, the worker, the worker's own count, and the sum of all amounts. An
// amount of 1 has the worker make a call that does nothing and that no standby can follow.
#include "net.h"
#include <sched.h>
#include <semaphore.h>
#include <sys/epoll.h>

enum { WORKERS = 16, QUEUE = 1024, INSIDE = 4, REFUSED = 1, DEATH_EVERY = 64, WRITE_EVERY = 16 };

struct connection {
    int fd;
    uint64_t count;
};

static int set, listener;

/* The queue between the thread that waits for readiness and the workers. */
static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER, emptied = PTHREAD_COND_INITIALIZER;
static struct connection *queue[QUEUE];
static unsigned queue_head, queue_tail;

static pthread_mutex_t recursive, checking, robust, inside_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t table_lock = PTHREAD_RWLOCK_INITIALIZER;
static sem_t places;
static uint64_t sum, table[2];
static long inside, deaths, deaths_seen;

static __thread uint64_t answered;

static void put(struct connection *c)
{
    ZERO(pthread_mutex_lock(&queue_lock));
    while (queue_tail - queue_head == QUEUE)
        ZERO(pthread_cond_wait(&emptied, &queue_lock));
    queue[queue_tail++ % QUEUE] = c;
    ZERO(pthread_cond_signal(&filled));
    ZERO(pthread_mutex_unlock(&queue_lock));
}

static struct connection *get(void)
{
    ZERO(pthread_mutex_lock(&queue_lock));
    while (queue_tail == queue_head)
        ZERO(pthread_cond_wait(&filled, &queue_lock));
    struct connection *c = queue[queue_head++ % QUEUE];
    ZERO(pthread_cond_signal(&emptied));
    ZERO(pthread_mutex_unlock(&queue_lock));
    return c;
}

static void make_locks(void)
{
    pthread_mutexattr_t attr;

    ZERO(pthread_mutexattr_init(&attr));
    ZERO(pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE));
    ZERO(pthread_mutex_init(&recursive, &attr));
    ZERO(pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK));
    ZERO(pthread_mutex_init(&checking, &attr));
    ZERO(pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_NORMAL));
    ZERO(pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST));
    ZERO(pthread_mutex_init(&robust, &attr));
    CHECK(sem_init(&places, 0, INSIDE) == 0);
}

/* Under the robust mutex: who finds that its owner died counts the death. */
static void lock_robust(void)
{
    int rc = pthread_mutex_lock(&robust);

    CHECK(rc == 0 || rc == EOWNERDEAD);
    if (rc == EOWNERDEAD) {
        deaths_seen++;
        ZERO(pthread_mutex_consistent(&robust));
    }
    CHECK(deaths_seen == deaths);
}

static void *die_holding(void *arg)
{
    (void)arg;
    lock_robust();
    deaths++;
    return NULL; /* without unlocking */
}

/* Every kind of lock once; the sum after the amount was added. */
static uint64_t account(uint64_t amount)
{
    uint64_t result;

    while (sem_wait(&places) != 0)
        CHECK(errno == EINTR);
    ZERO(pthread_mutex_lock(&inside_lock));
    CHECK(++inside <= INSIDE);
    ZERO(pthread_mutex_unlock(&inside_lock));

    ZERO(pthread_mutex_lock(&checking));
    RETURNS(pthread_mutex_lock(&checking), EDEADLK);
    ZERO(pthread_mutex_lock(&recursive));
    ZERO(pthread_mutex_lock(&recursive));
    sum += amount;
    result = sum;
    ZERO(pthread_mutex_unlock(&recursive));
    ZERO(pthread_mutex_unlock(&recursive));
    ZERO(pthread_mutex_unlock(&checking));
    RETURNS(pthread_mutex_unlock(&checking), EPERM);

    if (answered % WRITE_EVERY == 0) {
        ZERO(pthread_rwlock_wrlock(&table_lock));
        table[0]++;
        table[1]++;
    } else {
        ZERO(pthread_rwlock_rdlock(&table_lock));
    }
    CHECK(table[0] == table[1]);
    ZERO(pthread_rwlock_unlock(&table_lock));

    if (answered % DEATH_EVERY == 0)
        guest_join(guest_start(die_holding, NULL));
    lock_robust();
    ZERO(pthread_mutex_unlock(&robust));

    ZERO(pthread_mutex_lock(&inside_lock));
    inside--;
    ZERO(pthread_mutex_unlock(&inside_lock));
    CHECK(sem_post(&places) == 0);
    return result;
}

/* One request of a connection that has one. False: its peer has closed. */
static int serve(struct connection *c, uint64_t worker)
{
    uint64_t request[2];
    ssize_t n = recv(c->fd, request, sizeof request, MSG_WAITALL);

    if (n <= 0) {
        CHECK(n == 0 || errno == ECONNRESET);
        return 0;
    }
    CHECK(n == sizeof request);
    answered++;
    if (request[1] == REFUSED)
        CHECK(unshare(0) == 0);
    uint64_t answer[5] = { request[0], ++c->count, worker, answered, account(request[1]) };
    return send(c->fd, answer, sizeof answer, MSG_NOSIGNAL) == sizeof answer;
}

static void *work(void *arg)
{
    for (;;) {
        struct connection *c = get();
        struct epoll_event event = { .events = EPOLLIN | EPOLLONESHOT, .data.ptr = c };
        if (serve(c, (uint64_t)guest_num(arg))) {
            CHECK(epoll_ctl(set, EPOLL_CTL_MOD, c->fd, &event) == 0);
        } else {
            CHECK(close(c->fd) == 0);
            free(c);
        }
    }
    return NULL;
}

static void take(void)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC), on = 1;

    if (fd < 0) {
        CHECK(errno == ECONNABORTED || errno == EINTR || errno == EAGAIN);
        return;
    }
    CHECK(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
    struct connection *c = (struct connection *)calloc(1, sizeof *c);
    struct epoll_event event = { .events = EPOLLIN | EPOLLONESHOT, .data.ptr = c };
    CHECK(c != NULL);
    c->fd = fd;
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
}

int main(int argc, char **argv)
{
    struct sockaddr_in address = { .sin_family = AF_INET };
    struct epoll_event events[32], first = { .events = EPOLLIN };
    int on = 1;

    CHECK(argc == 2);
    make_locks();
    address.sin_port = htons((uint16_t)strtol(argv[1], NULL, 10));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    CHECK(listener >= 0 && setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
    CHECK(bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, 64) == 0);
    set = epoll_create1(EPOLL_CLOEXEC);
    CHECK(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, listener, &first) == 0);
    for (long w = 0; w < WORKERS; w++)
        guest_start(work, guest_ptr(w));
    for (;;) {
        int n = epoll_wait(set, events, 32, -1);
        CHECK(n >= 0 || errno == EINTR);
        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr)
                put((struct connection *)events[i].data.ptr);
            else
                take();
        }
    }
}
