// Shows: a stack without locks (Treiber's, with a count against reuse, by cmpxchg16b), through which threads hand on blocks: each is
// popped as often as it was pushed, and in a standby by the same threads.
// Breaks if: a wide comparison is not ordered, or a pointer of the primary's gets into the standby.
// kit: varies
// kit: stale a race, and beside a recording nobody orders atomic instructions
// kit: serial one thread at a time: its threads are ordered by nothing that a recording has
// kit: schedule its threads are ordered by atomic instructions of their own
#include "guest.h"

enum { THREADS = 3, NODES = 12, ROUNDS = 400 };

struct node {
    struct node *next;
    unsigned long value;
};
struct head {
    struct node *first;
    unsigned long count;
} __attribute__((aligned(16)));

static struct head head;
static struct node nodes[NODES];

static int swap(struct head *seen, struct head next)
{
    char done;

    __asm__ volatile("lock cmpxchg16b %1\n\tsete %0"
                     : "=q"(done), "+m"(head), "+a"(seen->first), "+d"(seen->count)
                     : "b"(next.first), "c"(next.count)
                     : "memory", "cc");
    return done;
}

static void push(struct node *node)
{
    struct head seen = {head.first, head.count};

    do
        node->next = seen.first;
    while (!swap(&seen, (struct head){node, seen.count + 1}));
}

static struct node *pop(void)
{
    struct head seen = {head.first, head.count};

    do
        if (seen.first == NULL)
            return NULL;
    while (!swap(&seen, (struct head){__atomic_load_n(&seen.first->next, __ATOMIC_RELAXED), seen.count + 1}));
    return seen.first;
}

static void *run(void *arg)
{
    char line[64];
    int sink = open("/dev/null", O_WRONLY);
    unsigned long mine = 0;

    CHECK(sink >= 0);
    for (int r = 0; r < ROUNDS; r++) {
        // More nodes than all threads can hold: there always is one.
        struct node *node = pop(), *other = pop();

        CHECK(node != NULL && other != NULL && node != other);
        node->value = node->value * 31 + (unsigned long)guest_num(arg) + 1;
        mine = mine * 7 + node->value + other->value;
        push(node);
        push(other);
        int len = snprintf(line, sizeof line, "%td %lx\n", node - nodes, mine);
        RETURNS(write(sink, line, (size_t)len), len);
        if (r % 4 == 0)
            guest_pause_us(500);
    }
    ZERO(close(sink));
    return NULL;
}

int main(void)
{
    int left = 0;

    for (int n = 0; n < NODES; n++)
        push(&nodes[n]);
    guest_run(run, THREADS);
    while (pop() != NULL)
        left++;
    CHECK(left == NODES);
    return guest_ok();
}
