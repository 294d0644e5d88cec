// Shows: POSIX message queues between parent and child: one fills and blocks, priorities are obeyed, the other answers.
// Breaks if: a message that was put or taken by a process is put or taken again when it goes on in its other copy.
// kit: tree
#include "guest.h"
#include <mqueue.h>
#include <sys/wait.h>

enum { ROUNDS = 180, BATCH = 4, DEPTH = 6 };

static mqd_t queue(const char *what)
{
    struct mq_attr attributes = { .mq_maxmsg = DEPTH, .mq_msgsize = sizeof(long) };
    char name[64];

    snprintf(name, sizeof name, "/guest-%d-%s", (int)getpid(), what);
    mqd_t q = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &attributes);
    CHECK(q >= 0 && mq_unlink(name) == 0);
    return q;
}

/* All of a batch wait in the queue before one is taken: the highest number has the highest priority. */
static void take_batch(mqd_t q, long from)
{
    for (long i = BATCH; i-- > 0;) {
        unsigned priority;
        long n;
        CHECK(mq_receive(q, (char *)&n, sizeof n, &priority) == sizeof n);
        CHECK(n == from + i && priority == (unsigned)i);
    }
}

int main(void)
{
    mqd_t down = queue("down"), up = queue("up");
    int status, go[2];
    long sum = 0, n;
    char byte;

    CHECK(pipe(go) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        for (long r = 0; r < ROUNDS; r++) {
            guest_read_all(go[0], &byte, 1);
            take_batch(down, r * BATCH);
            for (long i = 0; i < 2 * BATCH; i++) { /* more than there is room for */
                n = r * 1000 + i;
                CHECK(mq_send(up, (char *)&n, sizeof n, 3) == 0);
            }
        }
        _exit(0);
    }
    for (long r = 0; r < ROUNDS; r++) {
        for (long i = 0; i < BATCH; i++) {
            n = r * BATCH + i;
            CHECK(mq_send(down, (char *)&n, sizeof n, (unsigned)i) == 0);
        }
        guest_write_all(go[1], "g", 1);
        for (long i = 0; i < 2 * BATCH; i++) {
            CHECK(mq_receive(up, (char *)&n, sizeof n, NULL) == sizeof n && n == r * 1000 + i);
            sum += n;
        }
        guest_pause_us(1800);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(mq_close(down) == 0 && mq_close(up) == 0);
    printf("sum %ld\n", sum);
    return guest_ok();
}
