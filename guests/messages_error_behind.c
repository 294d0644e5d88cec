// Shows: an error that a recvmmsg meets behind its first message is told by the next call, and a call for more than it needs to
//        wait for ends with what has come.
// Breaks if: the error is lost with the messages before it, or takes their place.
#include "net.h"
#include <errno.h>
#include <sys/ioctl.h>

enum { ROUNDS = 40, BATCH = 3 };

static int own, peer, told;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int is_told(void)
{
    ZERO(pthread_mutex_lock(&lock));
    int now = told;
    ZERO(pthread_mutex_unlock(&lock));
    return now;
}

static void *enemy(void *arg)
{
    int left = 1;

    (void)arg;
    while (left != 0) {
        ZERO(ioctl(own, FIONREAD, &left));
        guest_pause_us(100);
    }
    ZERO(close(peer));
    /* An error is told once, here or there, and one that a primary has been told and died with is lost like any datagram. */
    while (!is_told()) {
        CHECK(send(own, "x", 1, 0) == 1 || errno == ECONNREFUSED);
        guest_pause_us(500);
    }
    return NULL;
}

int main(void)
{
    for (int round = 0; round < ROUNDS; round++) {
        struct sockaddr_in here, there;
        struct mmsghdr m[BATCH] = { 0 };
        struct iovec v[BATCH];
        char data[BATCH][16];

        own = net_bound(SOCK_DGRAM, &here);
        peer = net_bound(SOCK_DGRAM, &there);
        ZERO(connect(own, (struct sockaddr *)&there, sizeof there));
        for (int i = 0; i < BATCH; i++) {
            v[i] = (struct iovec){ data[i], sizeof data[i] };
            m[i].msg_hdr.msg_iov = &v[i];
            m[i].msg_hdr.msg_iovlen = 1;
        }
        CHECK(sendto(peer, "hello", 5, 0, (struct sockaddr *)&here, sizeof here) == 5);
        pthread_t t = guest_start(enemy, NULL);
        CHECK(recvmmsg(own, m, BATCH, 0, NULL) == 1);
        CHECK(m[0].msg_len == 5 && memcmp(data[0], "hello", 5) == 0);
        CHECK(recvmmsg(own, m, BATCH, 0, NULL) == -1 && errno == ECONNREFUSED);
        ZERO(pthread_mutex_lock(&lock));
        told = 1;
        ZERO(pthread_mutex_unlock(&lock));
        guest_join(t);
        told = 0;
        ZERO(close(own));
    }
    return guest_ok();
}
