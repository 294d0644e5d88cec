// Shows: pids that the kernel tells about others: who sent a signal, who is at the other end of a socket, who sent a message, who holds a lock,
// who has used System V's semaphores and queues last.
// Breaks if: the kernel's pid of the copy that a process goes on in is told, which the program never saw.
// kit: tree
#include "guest.h"
#include <signal.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

enum { ROUNDS = 150 };

union control {
    struct cmsghdr header;
    char room[CMSG_SPACE(sizeof(struct ucred))];
};

static pid_t sender_of_message(int channel)
{
    union control control;
    struct ucred who = { 0 };
    char byte;
    struct iovec v = { &byte, 1 };
    struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control };

    CHECK(recvmsg(channel, &m, 0) == 1);
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    CHECK(c && c->cmsg_type == SCM_CREDENTIALS);
    memcpy(&who, CMSG_DATA(c), sizeof who);
    CHECK(who.uid == getuid());
    return who.pid;
}

static pid_t sender_of_signal(const sigset_t *set, int code)
{
    siginfo_t info;

    CHECK(sigwaitinfo(set, &info) == SIGUSR1 && info.si_code == code);
    return info.si_pid;
}

static pid_t holder_of_lock(int file)
{
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 8 };

    CHECK(fcntl(file, F_GETLK, &lock) == 0 && lock.l_type == F_WRLCK);
    return lock.l_pid;
}

/* Whether it is another one than the machine's first, which has this number. */
static int is_in_pid_namespace(void)
{
    char text[64] = "";

    CHECK(readlink("/proc/self/ns/pid", text, sizeof text - 1) > 0);
    return strcmp(text, "pid:[4026531836]") != 0;
}

static pid_t peer_of(int socket)
{
    struct ucred who;
    socklen_t len = sizeof who;

    CHECK(getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0 && len == sizeof who);
    return who.pid;
}

/* As message; two at a time, as recvmmsg has them. */
static void senders_of_two(int channel, pid_t told[2])
{
    union control control[2];
    char bytes[2];
    struct iovec v[2] = { { &bytes[0], 1 }, { &bytes[1], 1 } };
    struct mmsghdr m[2] = { 0 };

    for (int i = 0; i < 2; i++)
        m[i].msg_hdr = (struct msghdr){ .msg_iov = &v[i], .msg_iovlen = 1, .msg_control = &control[i], .msg_controllen = sizeof control[i] };
    CHECK(recvmmsg(channel, m, 2, 0, NULL) == 2);
    for (int i = 0; i < 2; i++) {
        struct ucred who;
        struct cmsghdr *c = CMSG_FIRSTHDR(&m[i].msg_hdr);
        CHECK(c && c->cmsg_type == SCM_CREDENTIALS);
        memcpy(&who, CMSG_DATA(c), sizeof who);
        told[i] = who.pid;
    }
}

static int listener(struct sockaddr_un *at)
{
    int socket_ = socket(AF_UNIX, SOCK_STREAM, 0);

    *at = (struct sockaddr_un){ .sun_family = AF_UNIX };
    CHECK(snprintf(at->sun_path, sizeof at->sun_path, "%s", guest_path("socket").s) < (int)sizeof at->sun_path);
    CHECK(socket_ >= 0 && bind(socket_, (void *)at, sizeof *at) == 0 && listen(socket_, 4) == 0);
    return socket_;
}

int main(void)
{
    int channel[2], status, on = 1;
    sigset_t set;
    char byte;

    guest_scratch();
    struct guest_name name = guest_path("file");
    int file = open(name.s, O_RDWR | O_CREAT, 0600);
    CHECK(file >= 0 && unlink(name.s) == 0 && socketpair(AF_UNIX, SOCK_SEQPACKET, 0, channel) == 0);
    CHECK(setsockopt(channel[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    struct sockaddr_un at;
    int listens = listener(&at);
    int queue = msgget(IPC_PRIVATE, IPC_CREAT | 0600), semaphores = semget(IPC_PRIVATE, 1, IPC_CREAT | 0600);
    CHECK(queue >= 0 && semaphores >= 0);
    pid_t parent = getpid(), pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 8 };
        CHECK(fcntl(file, F_SETLK, &lock) == 0);
        for (int r = 0; r < ROUNDS; r++) {
            struct { long type; char byte; } message = { 1, 'q' };
            struct sembuf up = { 0, 1, 0 };
            CHECK(msgsnd(queue, &message, 1, 0) == 0 && semop(semaphores, &up, 1) == 0);
            int caller = socket(AF_UNIX, SOCK_STREAM, 0);
            CHECK(caller >= 0 && connect(caller, (void *)&at, sizeof at) == 0 && peer_of(caller) == parent);
            for (int i = 0; i < 3; i++)
                CHECK(send(channel[1], "m", 1, 0) == 1);
            CHECK(sender_of_signal(&set, SI_USER) == parent);
            CHECK(r % 2 ? kill(parent, SIGUSR1) == 0 : sigqueue(parent, SIGUSR1, (union sigval){ 0 }) == 0);
            CHECK(recv(channel[1], &byte, 1, 0) == 1);
            CHECK(close(caller) == 0);
        }
        _exit(0);
    }
    for (int r = 0; r < ROUNDS; r++) {
        CHECK(sender_of_message(channel[0]) == pid);
        pid_t told[2];
        senders_of_two(channel[0], told);
        CHECK(told[0] == pid && told[1] == pid);
        int called = accept(listens, NULL, NULL);
        CHECK(called >= 0 && peer_of(called) == pid);
        pid_t holder = holder_of_lock(file);
        /* Of a process that is gone a namespace of its own tells nothing. */
        CHECK(holder == pid || (holder == 0 && is_in_pid_namespace()));
        struct msqid_ds q;
        CHECK(msgctl(queue, IPC_STAT, &q) == 0 && q.msg_lspid == pid);
        CHECK(semctl(semaphores, 0, GETPID) == pid);
        struct { long type; char byte; } message;
        CHECK(msgrcv(queue, &message, 1, 0, 0) == 1);
        CHECK(kill(pid, SIGUSR1) == 0);
        CHECK(sender_of_signal(&set, r % 2 ? SI_USER : SI_QUEUE) == pid);
        CHECK(peer_of(called) == pid && close(called) == 0);
        CHECK(send(channel[0], "d", 1, 0) == 1);
        guest_pause_us(2000);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(unlink(at.sun_path) == 0);
    CHECK(msgctl(queue, IPC_RMID, NULL) == 0 && semctl(semaphores, 0, IPC_RMID) == 0);
    guest_scratch_end();
    printf("rounds %d\n", ROUNDS);
    return guest_ok();
}
