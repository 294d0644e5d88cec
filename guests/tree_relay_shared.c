// Shows: a parent and its children hand each other numbers in strict turns through shared memory: semaphores, and mutexes with
//        conditions, that processes share.
// Breaks if: a post, a wake or the memory behind it is lost or doubled where another process has gone on since.
// kit: tree
// kit: turns several threads of a process, and small memory: only the order of turns says what each of them sees
// kit: family the end of one standby is the end of all
// kit: allow unprotected memory that a child shares and that is newer than its parent's standby costs that standby
// kit: allow standby_lost the same
// kit: stale a recorded group has no family: a standby beside a recording sees the memory as it was
// kit: serial one thread at a time: its threads, or processes, do to each other what no lock orders
#include "relay.h"
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { CHILDREN = 2, RELAYS = 2 * CHILDREN, ROUNDS = 8000 };

static struct slot {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    sem_t full[2];
    uint64_t number[2];
    int is_full[2];
} *slots;

static void put(struct relay *r, int end, uint64_t number)
{
    struct slot *s = &slots[r->fd[0]];

    if (r->fd[0] % 2) {
        s->number[end] = number;
        CHECK(sem_post(&s->full[end]) == 0);
        return;
    }
    ZERO(pthread_mutex_lock(&s->lock));
    CHECK(!s->is_full[end]);
    s->number[end] = number;
    s->is_full[end] = 1;
    ZERO(pthread_cond_broadcast(&s->changed));
    ZERO(pthread_mutex_unlock(&s->lock));
}

static uint64_t take(struct relay *r, int end)
{
    struct slot *s = &slots[r->fd[0]];
    uint64_t number;

    if (r->fd[0] % 2) {
        while (sem_wait(&s->full[!end]) != 0)
            CHECK(errno == EINTR);
        return s->number[!end];
    }
    ZERO(pthread_mutex_lock(&s->lock));
    while (!s->is_full[!end])
        ZERO(pthread_cond_wait(&s->changed, &s->lock));
    s->is_full[!end] = 0;
    number = s->number[!end];
    ZERO(pthread_mutex_unlock(&s->lock));
    return number;
}

static void make_slot(struct slot *s)
{
    pthread_mutexattr_t mutex;
    pthread_condattr_t cond;

    ZERO(pthread_mutexattr_init(&mutex));
    ZERO(pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED));
    ZERO(pthread_condattr_init(&cond));
    ZERO(pthread_condattr_setpshared(&cond, PTHREAD_PROCESS_SHARED));
    ZERO(pthread_mutex_init(&s->lock, &mutex));
    ZERO(pthread_cond_init(&s->changed, &cond));
    CHECK(sem_init(&s->full[0], 1, 0) == 0 && sem_init(&s->full[1], 1, 0) == 0);
}

int main(void)
{
    struct relay relays[RELAYS];
    pthread_t threads[RELAYS];
    pid_t children[CHILDREN];
    int status;

    slots = (struct slot *)mmap(NULL, RELAYS * sizeof *slots, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(slots != MAP_FAILED);
    for (int i = 0; i < RELAYS; i++) {
        make_slot(&slots[i]);
        relays[i] = (struct relay){ .fd = { i, i }, .put = put, .take = take, .rounds = ROUNDS };
    }
    for (int c = 0; c < CHILDREN; c++) {
        children[c] = fork();
        CHECK(children[c] >= 0);
        if (children[c] == 0) {
            pthread_t other = guest_start(relay_second, &relays[2 * c]);
            relay_second(&relays[2 * c + 1]);
            guest_join(other);
            _exit(7 + c);
        }
    }
    for (int i = 0; i < RELAYS; i++)
        threads[i] = guest_start(relay_first, &relays[i]);
    for (int i = 0; i < RELAYS; i++)
        guest_join(threads[i]);
    for (int c = 0; c < CHILDREN; c++) {
        CHECK(waitpid(children[c], &status, 0) == children[c]);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7 + c);
    }
    printf("%d children, %d rounds\n", CHILDREN, ROUNDS);
    return guest_ok();
}
