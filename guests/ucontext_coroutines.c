// Shows: swapcontext coroutines on small stacks, several in each thread, with locks and sleeps inside.
// Breaks if: the runtime needs more stack than a coroutine has, or takes the stack for the thread.
#include "guest.h"
#include <ucontext.h>

enum { THREADS = 3, COROUTINES = 4, STEPS = 80, STACK = 16384 };

struct team {
    ucontext_t home, context[COROUTINES];
    int current, finished;
    uint64_t trail;
};

static __thread struct team *team;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long steps;

static void body(void)
{
    int me = team->current;

    for (int s = 0; s < STEPS; s++) {
        team->trail = guest_mix(team->trail ^ (uint64_t)(me * 1000 + s));
        ZERO(pthread_mutex_lock(&lock));
        steps++;
        ZERO(pthread_mutex_unlock(&lock));
        if (s % 4 == me)
            guest_pause_us(200);
        CHECK(swapcontext(&team->context[me], &team->home) == 0);
        CHECK(team->current == me);
    }
    team->finished++;
}

static void prepare(ucontext_t *context, ucontext_t *home)
{
    CHECK(getcontext(context) == 0);
    context->uc_stack.ss_sp = malloc(STACK);
    context->uc_stack.ss_size = STACK;
    context->uc_link = home;
    makecontext(context, body, 0);
}

static void *run(void *arg)
{
    team = (struct team *)calloc(1, sizeof *team);
    team->trail = (uint64_t)guest_num(arg);
    for (int i = 0; i < COROUTINES; i++)
        prepare(&team->context[i], &team->home);
    for (int s = 0; s <= STEPS; s++)
        for (team->current = 0; team->current < COROUTINES; team->current++)
            CHECK(swapcontext(&team->home, &team->context[team->current]) == 0);
    CHECK(team->finished == COROUTINES);
    return guest_ptr((long)(team->trail >> 4));
}

int main(void)
{
    pthread_t t[THREADS];

    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, guest_ptr(i));
    for (int i = 0; i < THREADS; i++)
        printf("thread %d: %015lx\n", i, guest_num(guest_join(t[i])));
    printf("steps %ld\n", steps);
    return guest_ok();
}
