// Shows: numbers handed on in strict turns through POSIX and System V message queues.
// Breaks if: a message in doubt is put in, or waited for, a second time after its receiver has answered it.
//        (There is room for more than one message: of a queue that is full nothing tells who has filled it.)
#include "relay.h"
#include <mqueue.h>
#include <sys/ipc.h>
#include <sys/msg.h>

enum { EACH = 3, PAIRS = 2 * EACH, ROUNDS = 1500 };

static mqd_t named[EACH][2];
static int plain[EACH][2];

struct message {
    long type;
    uint64_t number;
};

static void put(struct relay *r, int end, uint64_t number)
{
    CHECK(mq_send(named[r->fd[0]][end], (const char *)&number, sizeof number, 0) == 0);
}

static uint64_t take(struct relay *r, int end)
{
    uint64_t number;

    CHECK(mq_receive(named[r->fd[0]][!end], (char *)&number, sizeof number, NULL) == sizeof number);
    return number;
}

static void put_plain(struct relay *r, int end, uint64_t number)
{
    struct message message = { 1, number };

    while (msgsnd(plain[r->fd[0]][end], &message, sizeof number, 0) != 0)
        CHECK(errno == EINTR);
}

static uint64_t take_plain(struct relay *r, int end)
{
    struct message message;

    while (msgrcv(plain[r->fd[0]][!end], &message, sizeof message.number, 0, 0) != sizeof message.number)
        CHECK(errno == EINTR);
    return message.number;
}

int main(void)
{
    struct mq_attr several = { .mq_maxmsg = 4, .mq_msgsize = 8 };
    struct relay relays[PAIRS];
    char name[64];

    for (int i = 0; i < EACH; i++) {
        for (int way = 0; way < 2; way++) {
            CHECK(snprintf(name, sizeof name, "/guest-relay-%ld-%d-%d", (long)getpid(), i, way) < (int)sizeof name);
            named[i][way] = mq_open(name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600, &several);
            CHECK(named[i][way] >= 0 && mq_unlink(name) == 0);
            plain[i][way] = msgget(IPC_PRIVATE, IPC_CREAT | 0600);
            CHECK(plain[i][way] >= 0);
        }
        relays[i] = (struct relay){ .fd = { i, i }, .put = put, .take = take };
        relays[EACH + i] = (struct relay){ .fd = { i, i }, .put = put_plain, .take = take_plain };
    }
    relay_all(relays, PAIRS, ROUNDS);
    for (int i = 0; i < EACH; i++) {
        for (int way = 0; way < 2; way++)
            CHECK(mq_close(named[i][way]) == 0 && msgctl(plain[i][way], IPC_RMID, NULL) == 0);
    }
    return guest_ok();
}
