// Shows: System V semaphores between threads: sets of them, waits for zero, SEM_UNDO, timeouts, and EIDRM once the set is removed.
// Breaks if: a wait that the kernel has granted is made again, or one is lost, or the removal ends no wait in a copy.
#include "guest.h"
#include <sys/ipc.h>
#include <sys/sem.h>

enum { ROUNDS = 80 };

static int set;
/* volatile: semop is declared such that the compiler may keep a static over it. */
static volatile long balance;

static void add(int which, int by)
{
    struct sembuf op = { (unsigned short)which, (short)by, 0 };

    while (semop(set, &op, 1) != 0)
        CHECK(errno == EINTR);
}

static void *other(void *arg)
{
    struct sembuf both[2] = { { 0, -1, 0 }, { 2, -1, 0 } };
    struct sembuf wait = { 3, -1, 0 };

    for (int r = 0; r < ROUNDS; r++) {
        while (semop(set, both, 2) != 0)
            CHECK(errno == EINTR);
        CHECK(balance == 2 * r + 1);
        balance++;
        add(1, 1);
    }
    FAILS(semop(set, &wait, 1), EIDRM);
    return arg;
}

int main(void)
{
    unsigned short values[4] = { 0, 0, 0, 0 };
    struct timespec little = { 0, 300000 };

    set = semget(IPC_PRIVATE, 4, IPC_CREAT | 0600);
    CHECK(set >= 0 && semctl(set, 0, SETALL, values) == 0);
    pthread_t t = guest_start(other, NULL);
    for (int r = 0; r < ROUNDS; r++) {
        struct sembuf never = { 3, -1, 0 }, zero = { 3, 0, IPC_NOWAIT };
        balance++;
        add(0, 1);
        add(2, 1);
        add(1, -1);
        CHECK(balance == 2 * r + 2 && semop(set, &zero, 1) == 0);
        if (r % 10 == 0)
            FAILS(semtimedop(set, &never, 1, &little), EAGAIN);
        never.sem_flg = IPC_NOWAIT;
        FAILS(semop(set, &never, 1), EAGAIN);
        CHECK(semctl(set, 1, GETVAL) == 0 && semctl(set, 0, GETALL, values) == 0 && values[2] == 0);
        guest_pause_us(800);
    }
    while (semctl(set, 3, GETNCNT) != 1)
        guest_pause_us(200);
    CHECK(semctl(set, 0, IPC_RMID) == 0);
    guest_join(t);
    printf("balance %ld\n", balance);
    return guest_ok();
}
