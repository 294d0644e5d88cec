// Shows: pids that the kernel tells about others: who sent a signal, who is at the other end of a socket, who sent a message, who holds a lock.
// Breaks if: the kernel's pid of the copy that a process goes on in is told, which the program never saw.
// kit: tree
// kit: no-kill pids that come with messages, sockets and locks are the kernel's
#include "guest.h"
#include <signal.h>
#include <sys/socket.h>
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
    pid_t parent = getpid(), pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 8 };
        CHECK(fcntl(file, F_SETLK, &lock) == 0);
        for (int r = 0; r < ROUNDS; r++) {
            CHECK(send(channel[1], "m", 1, 0) == 1);
            CHECK(sender_of_signal(&set, SI_USER) == parent);
            CHECK(r % 2 ? kill(parent, SIGUSR1) == 0 : sigqueue(parent, SIGUSR1, (union sigval){ 0 }) == 0);
            CHECK(recv(channel[1], &byte, 1, 0) == 1);
        }
        _exit(0);
    }
    for (int r = 0; r < ROUNDS; r++) {
        CHECK(sender_of_message(channel[0]) == pid);
        CHECK(holder_of_lock(file) == pid);
        CHECK(kill(pid, SIGUSR1) == 0);
        CHECK(sender_of_signal(&set, r % 2 ? SI_USER : SI_QUEUE) == pid);
        CHECK(send(channel[0], "d", 1, 0) == 1);
        guest_pause_us(2000);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    guest_scratch_end();
    printf("rounds %d\n", ROUNDS);
    return guest_ok();
}
