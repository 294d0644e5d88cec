// Shows: System V semaphores with SEM_UNDO as a lock between processes, whose holder may end; a message queue with types beside it.
// Breaks if: a holder that goes on in its other copy has lost the lock by the end of its first, or an operation counts twice.
// kit: tree
// kit: no-checkpoint a queue of System V's is in no checkpoint, and the end of its processes undoes what they did to a semaphore
#include "guest.h"
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/wait.h>

enum { CHILDREN = 3, ROUNDS = 60 };

struct message {
    long type;
    long number;
};

static int set;

static void change(int by, int flags)
{
    struct sembuf op = { 0, (short)by, (short)flags };

    while (semop(set, &op, 1) != 0)
        CHECK(errno == EINTR);
}

static void child(long me, int queue, int file)
{
    for (long r = 0; r < ROUNDS; r++) {
        long n;
        change(-1, SEM_UNDO);
        CHECK(pread(file, &n, sizeof n, 0) == sizeof n);
        n++;
        CHECK(pwrite(file, &n, sizeof n, 0) == sizeof n);
        change(1, SEM_UNDO);
        struct message message = { me + 1, r };
        CHECK(msgsnd(queue, &message, sizeof message.number, 0) == 0);
        guest_pause_us(1500);
    }
    /* Ends with the lock, which the kernel gives back. */
    change(-1, SEM_UNDO);
    _exit(0);
}

int main(void)
{
    long n = 0, sum = 0;
    int status, queue = msgget(IPC_PRIVATE, 0600);

    guest_scratch();
    struct guest_name name = guest_path("count");
    int file = open(name.s, O_RDWR | O_CREAT | O_EXCL, 0600);
    set = semget(IPC_PRIVATE, 1, 0600);
    CHECK(queue >= 0 && set >= 0 && file >= 0 && write(file, &n, sizeof n) == sizeof n);
    CHECK(semctl(set, 0, SETVAL, 1) == 0);
    for (long c = 0; c < CHILDREN; c++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
            child(c, queue, file);
    }
    for (long r = 0; r < ROUNDS; r++)
        for (long c = CHILDREN; c > 0; c--) {
            struct message message;
            while (msgrcv(queue, &message, sizeof message.number, c, 0) < 0)
                CHECK(errno == EINTR);
            CHECK(message.type == c && message.number == r);
            sum += message.number;
        }
    for (int c = 0; c < CHILDREN; c++)
        CHECK(wait(&status) > 0 && status == 0);
    CHECK(semctl(set, 0, GETVAL) == 1 && pread(file, &n, sizeof n, 0) == sizeof n && n == CHILDREN * ROUNDS);
    CHECK(semctl(set, 0, IPC_RMID) == 0 && msgctl(queue, IPC_RMID, NULL) == 0 && close(file) == 0 && unlink(name.s) == 0);
    guest_scratch_end();
    printf("count %ld sum %ld\n", n, sum);
    return guest_ok();
}
