// Shows: queues that one message fills, and a semaphore that one thread takes: each message and each unit comes once, whoever waits.
// Breaks if: a message that has filled its queue is sent again, one whose sender still waits counts as sent, or a unit is taken twice.
#include "guest.h"
#include <mqueue.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/wait.h>

enum { MESSAGES = 160 };

struct message {
    long type;
    uint64_t number;
};

static int here, set;
static mqd_t there;

static void operate(int which, int by)
{
    struct sembuf operation = { (unsigned short)which, (short)by, 0 };
    ZERO(semop(set, &operation, 1));
}

static void *sender(void *arg)
{
    (void)arg;
    for (uint64_t n = 0; n < MESSAGES; n++) {
        struct message m = { 1, n };
        ZERO(msgsnd(here, &m, sizeof n, 0));
        ZERO(mq_send(there, (char *)&n, sizeof n, 0));
        operate(0, 1);
        operate(1, -1);
        if (n % 8 == 0)
            guest_pause_us(700);
    }
    return NULL;
}

int main(void)
{
    struct mq_attr attributes = { 0, 1, sizeof(uint64_t), 0, { 0 } };
    struct msqid_ds limits;
    char name[64];

    snprintf(name, sizeof name, "/guest-filled-%d", (int)getpid());
    here = msgget(IPC_PRIVATE, 0600);
    set = semget(IPC_PRIVATE, 2, 0600);
    there = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &attributes);
    CHECK(here >= 0 && set >= 0 && there >= 0 && mq_unlink(name) == 0);
    CHECK(semctl(set, 0, SETVAL, 0) == 0 && semctl(set, 1, SETVAL, 0) == 0);
    CHECK(msgctl(here, IPC_STAT, &limits) == 0);
    limits.msg_qbytes = sizeof(uint64_t);
    ZERO(msgctl(here, IPC_SET, &limits));
    pthread_t t = guest_start(sender, NULL);
    for (uint64_t n = 0; n < MESSAGES; n++) {
        struct message m = { 0, 0 };
        uint64_t number;
        if (n % 8 == 4)
            guest_pause_us(700);
        CHECK(msgrcv(here, &m, sizeof m.number, 0, 0) == sizeof m.number && m.number == n);
        CHECK(mq_receive(there, (char *)&number, sizeof number, NULL) == sizeof number && number == n);
        operate(0, -1);
        operate(1, 1);
    }
    guest_join(t);
    CHECK(semctl(set, 0, GETVAL) == 0 && semctl(set, 1, GETVAL) == 0);
    CHECK(msgrcv(here, &(struct message){ 0 }, sizeof(uint64_t), 0, IPC_NOWAIT) == -1);
    ZERO(msgctl(here, IPC_RMID, NULL));
    ZERO(semctl(set, 0, IPC_RMID));
    ZERO(mq_close(there));
    printf("messages %d\n", MESSAGES);
    return guest_ok();
}
