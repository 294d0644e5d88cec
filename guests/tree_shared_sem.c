// Shows: process-shared semaphores hand a turn back and forth between parent and child; a third one counts, with sem_timedwait.
// Breaks if: a post is lost with the process that made it, or given twice, or a sleeper in another process is not woken.
// kit: tree
// kit: allow unprotected memory that a child shares and that is newer than its parent's standby costs that standby
#include "guest.h"
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { ROUNDS = 400 };

struct box {
    sem_t ping, pong, items;
    long number;
};

static void take_item(struct box *box)
{
    struct timespec until = guest_deadline(CLOCK_REALTIME, 30000000);

    CHECK(sem_timedwait(&box->items, &until) == 0);
}

static void child(struct box *box)
{
    for (long r = 0; r < ROUNDS; r++) {
        CHECK(sem_wait(&box->ping) == 0);
        CHECK(box->number == 2 * r + 1);
        box->number++;
        CHECK(sem_post(&box->pong) == 0);
        if (r % 2)
            take_item(box);
    }
    FAILS(sem_trywait(&box->items), EAGAIN);
    _exit(0);
}

int main(void)
{
    int status, value;
    struct box *box =
        (struct box *)mmap(NULL, sizeof *box, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(box != MAP_FAILED);
    CHECK(sem_init(&box->ping, 1, 0) == 0 && sem_init(&box->pong, 1, 0) == 0 && sem_init(&box->items, 1, 0) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        child(box);
    for (long r = 0; r < ROUNDS; r++) {
        CHECK(box->number == 2 * r);
        box->number++;
        CHECK(sem_post(&box->ping) == 0);
        CHECK(sem_wait(&box->pong) == 0);
        if (r % 2)
            CHECK(sem_post(&box->items) == 0);
        guest_pause_us(1000);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(sem_getvalue(&box->items, &value) == 0 && value == 0);
    CHECK(sem_destroy(&box->ping) == 0 && sem_destroy(&box->pong) == 0 && sem_destroy(&box->items) == 0);
    printf("number %ld\n", box->number);
    CHECK(munmap(box, sizeof *box) == 0);
    return guest_ok();
}
