// Shows: receives that end by the socket's own time-out, while another thread's children end and nobody handles SIGCHLD.
// Breaks if: the signal of a child's end, which the program throws away, ends such a receive with EINTR.
#include "net.h"
#include <sys/wait.h>

enum { RECEIVERS = 3, ROUNDS = 15 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int receiving = RECEIVERS;

static int goes_on(int ended)
{
    ZERO(pthread_mutex_lock(&lock));
    int left = receiving -= ended;
    ZERO(pthread_mutex_unlock(&lock));
    return left > 0;
}

static void *forks(void *argument)
{
    while (goes_on(0)) {
        int status;
        pid_t child = fork();

        CHECK(child >= 0);
        if (child == 0) {
            usleep(500);
            _exit(3);
        }
        RETURNS(waitpid(child, &status, 0), child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    }
    return argument;
}

static void *receives(void *argument)
{
    const struct timeval time = { .tv_usec = 20000 };

    for (int round = 0; round < ROUNDS; round++) {
        struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        char byte;
        int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

        CHECK(fd >= 0);
        RETURNS(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
        RETURNS(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time), 0);
        FAILS(recv(fd, &byte, 1, 0), EAGAIN);
        RETURNS(close(fd), 0);
    }
    goes_on(1);
    return argument;
}

int main(void)
{
    pthread_t forker = guest_start(forks, NULL);

    guest_run(receives, RECEIVERS);
    guest_join(forker);
    return guest_ok();
}
