// Shows: semaphores in a megabyte that processes share: two of them pass a turn, a third takes from both, and signals end waits.
// Breaks if: a wait that a signal ends is another one's in a standby, or a post is lost or made twice when all take over together.
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
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { ROUNDS = 200 };

struct shared {
    sem_t ping, pong, extra, ready;
    long order[2 * ROUNDS];
    long count, taken, told;
    char room[1 << 20];
};

static volatile sig_atomic_t seen;

static void on_signal(int number)
{
    (void)number;
    seen++;
}

/* EINTR, or at once what was posted. */
static void take(sem_t *sem)
{
    while (sem_wait(sem) != 0)
        CHECK(errno == EINTR);
}

static void player(struct shared *s, int me)
{
    for (int r = 0; r < ROUNDS; r++) {
        take(me ? &s->pong : &s->ping);
        s->order[s->count++] = me;
        s->room[guest_mix((uint64_t)(2 * r + me)) % sizeof s->room]++;
        if (r % 20 == 19)
            CHECK(sem_post(&s->extra) == 0);
        CHECK(sem_post(me ? &s->ping : &s->pong) == 0);
        guest_pause_us(800);
    }
    _exit(0);
}

static void taker(struct shared *s)
{
    struct sigaction action = {.sa_handler = on_signal};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(sem_post(&s->ready) == 0);
    for (int t = 0; t < 2 * ROUNDS / 20; t++) {
        take(&s->extra);
        s->taken++;
    }
    s->told = seen;
    _exit(seen ? 0 : 1);
}

int main(void)
{
    int status;
    struct shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(s != MAP_FAILED);
    CHECK(sem_init(&s->ping, 1, 1) == 0 && sem_init(&s->pong, 1, 0) == 0);
    CHECK(sem_init(&s->extra, 1, 0) == 0 && sem_init(&s->ready, 1, 0) == 0);
    for (int me = 0; me < 2; me++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
            player(s, me);
    }
    guest_pause_us(100000);
    pid_t last = fork();
    CHECK(last >= 0);
    if (last == 0)
        taker(s);
    take(&s->ready);
    for (int n = 0; n < 10; n++) {
        CHECK(kill(last, SIGUSR1) == 0);
        guest_pause_us(10000);
    }
    for (int c = 0; c < 3; c++)
        CHECK(wait(&status) > 0 && status == 0);
    CHECK(s->count == 2 * ROUNDS && s->taken == 2 * ROUNDS / 20);
    for (int n = 0; n < 2 * ROUNDS; n++)
        CHECK(s->order[n] == n % 2);
    long rooms = 0;
    for (size_t i = 0; i < sizeof s->room; i++)
        rooms += s->room[i];
    CHECK(rooms == 2 * ROUNDS && s->told > 0);
    return guest_ok();
}
