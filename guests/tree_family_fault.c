// Shows: processes that share a megabyte die of faults of their own, of abort, and without room for a handler; the others go on and hear of it.
// Breaks if: the fault that repeats in a standby keeps the others from taking over, or an end is told otherwise than by the kernel.
// kit: tree
// kit: no-kill a fault that ends one is the end of all standbys: some kills meet nobody who could take over
// kit: allow promoted abort is a death that a standby takes over, and comes to by itself
// kit: allow unprotected memory that a child shares and that is newer than its parent's standby costs that standby
// kit: allow standby_lost the same
// kit: stale a recorded group has no family: a standby beside a recording sees the memory as it was
// kit: no-record the replay of processes in turns, one of which dies of a signal of the kernel, does not come to its next event

#include "guest.h"
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { ROUNDS = 16, STEPS = 12, KINDS = 4 };

struct shared {
    atomic_int lock, is_over;
    long count;
    long by[ROUNDS + 1];
    char room[1 << 20];
};

static const int ends[KINDS] = { SIGSEGV, SIGILL, SIGABRT, SIGSEGV };
static char *volatile nowhere;

static void step(struct shared *s, int me)
{
    while (atomic_exchange_explicit(&s->lock, 1, memory_order_acquire))
        guest_pause_us(100);
    s->count++;
    s->by[me]++;
    s->room[guest_mix((uint64_t)s->count) % sizeof s->room]++;
    atomic_store_explicit(&s->lock, 0, memory_order_release);
}

static void must_not_run(int signal)
{
    (void)signal;
    _exit(48);
}

static void child(struct shared *s, int me)
{
    const struct rlimit none = { 0, 0 };
    struct sigaction action = { .sa_handler = must_not_run, .sa_flags = SA_ONSTACK };
    stack_t stack = { .ss_size = 1 << 14 };

    CHECK(setrlimit(RLIMIT_CORE, &none) == 0);
    for (int n = 0; n < STEPS; n++) {
        step(s, me);
        guest_pause_us(500);
    }
    switch (me % KINDS) {
    case 0:
        *nowhere = 1;
        break;
    case 1:
        __builtin_trap();
    case 2:
        abort();
    default:
        stack.ss_sp = mmap(NULL, stack.ss_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(stack.ss_sp != MAP_FAILED);
        CHECK(sigaltstack(&stack, NULL) == 0 && sigaction(SIGSEGV, &action, NULL) == 0);
        *nowhere = 1;
    }
    _exit(49);
}

int main(void)
{
    int status;
    struct shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(s != MAP_FAILED);
    pid_t companion = fork();
    CHECK(companion >= 0);
    if (companion == 0) {
        while (!atomic_load(&s->is_over)) {
            step(s, ROUNDS);
            guest_pause_us(1500);
        }
        _exit(5);
    }
    for (int me = 0; me < ROUNDS; me++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
            child(s, me);
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == ends[me % KINDS]);
        CHECK(s->by[me] == STEPS);
        guest_pause_us(400000);
    }
    atomic_store(&s->is_over, 1);
    CHECK(waitpid(companion, &status, 0) == companion && WIFEXITED(status) && WEXITSTATUS(status) == 5);
    CHECK(s->count == s->by[ROUNDS] + ROUNDS * STEPS);
    long rooms = 0;
    for (size_t i = 0; i < sizeof s->room; i++)
        rooms += s->room[i];
    CHECK(rooms == s->count);
    return guest_ok();
}
