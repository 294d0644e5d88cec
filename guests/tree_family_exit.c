// Shows: a signal that comes while a process of a family computes on its way to _exit: its handler runs, in every copy.
// Breaks if: a standby gives its turn back at the door of _exit before it knows what its primary delivered there.
// kit: tree
// kit: family the end of one standby is the end of all
// kit: allow unprotected memory that a child shares and that is newer than its parent's standby costs that standby
// kit: allow standby_lost the same
// kit: stale a recorded group has no family: a standby beside a recording sees the memory as it was
// kit: no-record a signal that comes before a wait for a semaphore which processes share is at another place of the turns
// kit: serial one thread at a time: its threads, or processes, do to each other what no lock orders
#include "guest.h"
#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { CHILDREN = 12 };

struct shared {
    sem_t ready, go;
    long begun, handled;
    uint64_t sum;
    char room[1 << 20];
};

static struct shared *s;

static void on_signal(int number)
{
    (void)number;
    s->handled++;
}

static void take(sem_t *sem)
{
    while (sem_wait(sem) != 0)
        CHECK(errno == EINTR);
}

static void child(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(sem_post(&s->ready) == 0);
    take(&s->go);
    s->begun++;
    uint64_t sum = 0;
    for (uint64_t i = 0; i < 1000000; i++)
        sum += guest_mix(i);
    s->sum = sum;
    s->room[sum % sizeof s->room]++;
    _exit(0);
}

int main(void)
{
    s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(s != MAP_FAILED);
    CHECK(sem_init(&s->ready, 1, 0) == 0 && sem_init(&s->go, 1, 0) == 0);
    for (int c = 0; c < CHILDREN; c++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
            child();
        take(&s->ready);
        guest_pause_us(20000);
        CHECK(sem_post(&s->go) == 0);
        CHECK(kill(pid, SIGUSR1) == 0);
        int status;
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
        CHECK(s->begun == c + 1 && s->sum != 0);
    }
    CHECK(s->handled <= CHILDREN);
    return guest_ok();
}
