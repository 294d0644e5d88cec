// Shows: calls whose answer finds no place: messages and events, clocks, times and numbers of children, by number. EFAULT, or
// as much as there was room for.
// Breaks if: the runtime takes an answer for itself first, and does not say where it could not put it down.
#include "guest.h"
#include <mqueue.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/times.h>
#include <sys/wait.h>

enum { ROUNDS = 20, PAGE = 4096 };

/* By number: the C library looks at some pointers itself. */
#define BAD(number, ...) FAILS(syscall(number, __VA_ARGS__), EFAULT)

/* Of two events only the first has room. Both are level-triggered, and told again. */
static void events(int set, char *edge)
{
    struct epoll_event *last = (struct epoll_event *)(edge - sizeof *last), whole[2];

    RETURNS(syscall(SYS_epoll_wait, set, last, 2, 0), 1);
    CHECK(last->events == EPOLLIN && last->data.u64 / 2 == 21);
    RETURNS(epoll_wait(set, whole, 2, 0), 2);
    BAD(SYS_epoll_wait, set, edge, 2, 0);
    BAD(SYS_epoll_pwait, set, edge - 1, 2, 0, NULL, 0);
    RETURNS(epoll_wait(set, whole, 2, 0), 2);
    CHECK(whole[0].data.u64 + whole[1].data.u64 == 42 + 43);
}

static void datagrams(char *edge)
{
    struct sockaddr_in own = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof own;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    char byte[4];
    struct iovec vector = { byte, sizeof byte };

    CHECK(fd >= 0);
    ZERO(bind(fd, (struct sockaddr *)&own, sizeof own));
    ZERO(getsockname(fd, (struct sockaddr *)&own, &len));
    for (int i = 0; i < 4; i++)
        RETURNS(sendto(fd, "abc", 3, 0, (struct sockaddr *)&own, sizeof own), 3);
    /* The message is gone: it was for somebody who has no place for its sender. */
    BAD(SYS_recvfrom, fd, byte, 4, 0, edge, &len);
    BAD(SYS_recvfrom, fd, byte, 4, 0, &own, edge);
    struct msghdr message = { .msg_name = edge, .msg_namelen = 16, .msg_iov = &vector, .msg_iovlen = 1 };
    BAD(SYS_recvmsg, fd, &message, 0);
    RETURNS(recv(fd, byte, 4, 0), 3);
    FAILS(recv(fd, byte, 4, MSG_DONTWAIT), EAGAIN);
    ZERO(close(fd));
}

static void queued(char *edge)
{
    struct { long kind; char text[8]; } letter = { 1, "letter" };
    int queue = msgget(IPC_PRIVATE, 0600);
    char text[8];
    unsigned priority;

    CHECK(queue >= 0);
    ZERO(msgsnd(queue, &letter, 8, 0));
    ZERO(msgsnd(queue, &letter, 8, 0));
    BAD(SYS_msgrcv, queue, edge, 8L, 0L, 0);
    RETURNS(msgrcv(queue, &letter, 8, 0, 0), 8);
    FAILS(msgrcv(queue, &letter, 8, 0, IPC_NOWAIT), ENOMSG);
    ZERO(msgctl(queue, IPC_RMID, NULL));

    struct mq_attr sizes = { .mq_maxmsg = 4, .mq_msgsize = 8 };
    char name[32];
    snprintf(name, sizeof name, "/bad_answers.%d", (int)getpid());
    mqd_t mail = mq_open(name, O_CREAT | O_RDWR | O_EXCL | O_CLOEXEC, 0600, &sizes);
    CHECK(mail >= 0);
    ZERO(mq_unlink(name));
    for (int i = 0; i < 3; i++)
        ZERO(mq_send(mail, "mail", 4, 1));
    BAD(SYS_mq_timedreceive, mail, edge, 8L, &priority, NULL);
    BAD(SYS_mq_timedreceive, mail, text, 8L, edge, NULL);
    RETURNS(mq_receive(mail, text, 8, &priority), 4);
    ZERO(mq_close(mail));
}

static void child(char *edge)
{
    siginfo_t info;
    pid_t pid = fork();
    int status;

    if (pid == 0)
        _exit(3);
    CHECK(pid > 0);
    BAD(SYS_waitid, P_PID, pid, edge, WEXITED | WNOWAIT, NULL);
    BAD(SYS_waitid, P_PID, pid, &info, WEXITED | WNOWAIT, edge);
    BAD(SYS_wait4, pid, edge, 0, NULL);
    /* It has been waited for all the same. */
    FAILS(waitpid(pid, &status, 0), ECHILD);
}

int main(void)
{
    char *edge = (char *)mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) + PAGE;
    int set = epoll_create1(EPOLL_CLOEXEC);
    struct itimerspec never = { { 0, 0 }, { 0, 0 } };
    sigset_t usr1;
    timer_t timer;

    ZERO(mprotect(edge, PAGE, PROT_NONE));
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    ZERO(sigprocmask(SIG_BLOCK, &usr1, NULL));
    for (int i = 0; i < 2; i++) {
        struct epoll_event event = { EPOLLIN, { .u64 = 42 + (unsigned)i } };
        int fd = eventfd(1, EFD_CLOEXEC);

        CHECK(fd >= 0);
        ZERO(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
    }
    ZERO(timer_create(CLOCK_MONOTONIC, NULL, &timer));
    for (int r = 0; r < ROUNDS; r++) {
        events(set, edge);
        datagrams(edge);
        queued(edge);
        child(edge);
        BAD(SYS_time, edge);
        BAD(SYS_gettimeofday, edge, NULL);
        BAD(SYS_gettimeofday, NULL, edge);
        BAD(SYS_clock_gettime, CLOCK_REALTIME, edge);
        BAD(SYS_clock_getres, CLOCK_REALTIME, edge);
        BAD(SYS_getcpu, edge, NULL, NULL);
        BAD(SYS_getcpu, NULL, edge, NULL);
        BAD(SYS_times, edge);
        BAD(SYS_getrusage, RUSAGE_SELF, edge - 8);
        BAD(SYS_getitimer, ITIMER_REAL, edge);
        BAD(SYS_setitimer, ITIMER_REAL, edge, NULL);
        BAD(SYS_timer_settime, timer, 0, edge, NULL);
        BAD(SYS_timer_gettime, timer, edge);
        BAD(SYS_timer_create, CLOCK_MONOTONIC, NULL, edge);
        BAD(SYS_timer_create, CLOCK_MONOTONIC, edge, &timer);
        BAD(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, edge);
        BAD(SYS_prlimit64, 0, RLIMIT_AS, edge, NULL);
        BAD(SYS_getrlimit, RLIMIT_DATA, edge);
        BAD(SYS_sigaltstack, edge, NULL);
        BAD(SYS_sigaltstack, NULL, edge);
        BAD(SYS_rt_sigaction, SIGUSR2, edge, NULL, 8L);
        BAD(SYS_rt_sigaction, SIGUSR2, NULL, edge, 8L);
        BAD(SYS_rt_sigpending, edge, 8L);
        BAD(SYS_fcntl, set, F_SETOWN_EX, edge);
        BAD(SYS_fcntl, set, F_GETOWN_EX, edge);
        ZERO(kill(getpid(), SIGUSR1));
        BAD(SYS_rt_sigtimedwait, edge, NULL, NULL, 8L);
        BAD(SYS_rt_sigtimedwait, &usr1, edge, NULL, 8L);
        FAILS(syscall(SYS_rt_sigtimedwait, &usr1, NULL, &never.it_value, 8L), EAGAIN);
        guest_pause_us(500);
    }
    puts("no place");
    return guest_ok();
}
