// Shows: a log server on a local datagram socket: several processes send lines, each with SCM_CREDENTIALS that the kernel has checked; order within each.
// Breaks if: the number that a promoted sender gives for itself is not the one that the kernel wants, or a line comes twice.
// kit: tree
#include "guest.h"
#include <sys/socket.h>
#include <sys/wait.h>

enum { CHILDREN = 3, LINES = 60 };

static void child(int fd, long me)
{
    for (long n = 0; n < LINES; n++) {
        char line[64], control[CMSG_SPACE(sizeof(struct ucred))] = { 0 };
        int length = snprintf(line, sizeof line, "<%ld> line %ld", me, n);
        struct iovec part = { line, (size_t)length };
        struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        struct ucred own = { getpid(), getuid(), getgid() };
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_CREDENTIALS;
        head->cmsg_len = CMSG_LEN(sizeof own);
        memcpy(CMSG_DATA(head), &own, sizeof own);
        CHECK(sendmsg(fd, &message, 0) == length);
        guest_pause_us(3000);
    }
    _exit(0);
}

int main(void)
{
    long next[CHILDREN] = { 0 };
    int pair[2], on = 1, status;

    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
    CHECK(setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0);
    for (long c = 0; c < CHILDREN; c++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
            child(pair[1], c);
    }
    for (int i = 0; i < CHILDREN * LINES; i++) {
        char line[64], control[CMSG_SPACE(sizeof(struct ucred))];
        struct iovec part = { line, sizeof line - 1 };
        struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
        struct ucred sender;
        long who, n;
        ssize_t got = recvmsg(pair[0], &message, 0);
        CHECK(got > 0 && !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)));
        line[got] = 0;
        CHECK(sscanf(line, "<%ld> line %ld", &who, &n) == 2 && who < CHILDREN && n == next[who]);
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        CHECK(head && head->cmsg_type == SCM_CREDENTIALS);
        memcpy(&sender, CMSG_DATA(head), sizeof sender);
        CHECK(sender.pid > 0 && sender.uid == getuid() && sender.gid == getgid());
        next[who]++;
    }
    for (int c = 0; c < CHILDREN; c++)
        CHECK(wait(&status) > 0 && status == 0);
    printf("lines %d\n", CHILDREN * LINES);
    return guest_ok();
}
