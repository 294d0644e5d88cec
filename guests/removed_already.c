// Shows: what is taken away a second time answers with an error each time: a watch, a message queue's name, System V objects.
// Breaks if: such a call in doubt is made again, and its error is taken for the success of the first attempt.
#include "guest.h"
#include <mqueue.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>

enum { ROUNDS = 150 };

int main(void)
{
    char name[64];
    int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);

    snprintf(name, sizeof name, "/guest-removed-%d", (int)getpid());
    CHECK(fd >= 0);
    for (int r = 0; r < ROUNDS; r++) {
        int watch = inotify_add_watch(fd, "/", IN_DELETE_SELF);
        CHECK(watch == r + 1 && inotify_rm_watch(fd, watch) == 0);
        int queue = msgget(IPC_PRIVATE, 0600), set = semget(IPC_PRIVATE, 1, 0600), memory = shmget(IPC_PRIVATE, 4096, 0600);
        CHECK(queue >= 0 && set >= 0 && memory >= 0);
        CHECK(msgctl(queue, IPC_RMID, NULL) == 0 && semctl(set, 0, IPC_RMID) == 0 && shmctl(memory, IPC_RMID, NULL) == 0);
        mqd_t posix = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, NULL);
        CHECK(posix >= 0 && mq_close(posix) == 0 && mq_unlink(name) == 0);
        for (int again = 0; again < 6; again++) {
            FAILS(inotify_rm_watch(fd, watch), EINVAL);
            FAILS(mq_unlink(name), ENOENT);
            FAILS(msgctl(queue, IPC_RMID, NULL), EINVAL);
            FAILS(semctl(set, 0, IPC_RMID), EINVAL);
            FAILS(shmctl(memory, IPC_RMID, NULL), EINVAL);
        }
    }
    CHECK(close(fd) == 0);
    return guest_ok();
}
