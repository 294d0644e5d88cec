// Shows: System V and POSIX message queues: every message comes once and in order, its type and priority with it.
// Breaks if: a message that was taken dies with the primary, or one that was sent is sent again.
#include "guest.h"
#include <mqueue.h>
#include <sys/ipc.h>
#include <sys/msg.h>

enum { MESSAGES = 250 };

struct message {
    long type;
    uint64_t words[9];
};

static int queue;
static mqd_t posix;

static size_t words_of(int n) { return 1 + (size_t)n % 9; }

static void *sender(void *arg)
{
    (void)arg;
    for (int n = 0; n < MESSAGES; n++) {
        struct message m = { 1 + n % 5, { 0 } };
        for (size_t i = 0; i < words_of(n); i++)
            m.words[i] = guest_mix((uint64_t)n * 16 + i);
        CHECK(msgsnd(queue, &m, words_of(n) * 8, 0) == 0);
        CHECK(mq_send(posix, (char *)m.words, words_of(n) * 8, 3) == 0);
        if (n % 8 == 0)
            guest_pause_us(300);
    }
    return NULL;
}

static void expect(const struct message *m, ssize_t bytes, int n)
{
    CHECK(bytes == (ssize_t)words_of(n) * 8);
    for (size_t i = 0; i < words_of(n); i++)
        CHECK(m->words[i] == guest_mix((uint64_t)n * 16 + i));
}

int main(void)
{
    struct mq_attr attributes = { 0, 8, sizeof(uint64_t[9]), 0, { 0 } };
    char name[64];

    snprintf(name, sizeof name, "/guest-messages-%d", (int)getpid());
    queue = msgget(IPC_PRIVATE, 0600);
    posix = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &attributes);
    CHECK(queue >= 0 && posix >= 0 && mq_unlink(name) == 0);
    pthread_t t = guest_start(sender, NULL);
    for (int n = 0; n < MESSAGES; n++) {
        struct message m = { 0, { 0 } };
        unsigned priority = 0;
        expect(&m, msgrcv(queue, &m, sizeof m.words, 0, 0), n);
        CHECK(m.type == 1 + n % 5);
        expect(&m, mq_receive(posix, (char *)m.words, sizeof m.words, &priority), n);
        CHECK(priority == 3);
    }
    guest_join(t);
    CHECK(msgctl(queue, IPC_RMID, NULL) == 0 && mq_close(posix) == 0);
    printf("messages %d\n", MESSAGES);
    return guest_ok();
}
