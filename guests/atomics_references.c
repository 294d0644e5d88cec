// Shows: objects that are freed by whoever gives the last reference back, by lock dec and lock sub: once, and in a standby by the same
// thread.
// Breaks if: the order of the decrements is another one in the standby, where two free an object or nobody does.
// kit: varies
// kit: stale a race, and beside a recording nobody orders atomic instructions
// kit: serial one thread at a time: its threads are ordered by nothing that a recording has
// kit: schedule its threads are ordered by atomic instructions of their own
#include "guest.h"

enum { THREADS = 4, ROUNDS = 300 };

struct object {
    int references;
    int round;
};

static struct object *objects[ROUNDS];
static int freed;

static void *run(void *arg)
{
    char line[64];
    int sink = open("/dev/null", O_WRONLY);

    CHECK(sink >= 0);
    for (int r = 0; r < ROUNDS; r++) {
        struct object *object = objects[r];
        int was_last;

        CHECK(object->round == r);
        __atomic_add_fetch(&object->references, 1, __ATOMIC_RELAXED);
        CHECK(__atomic_sub_fetch(&object->references, 1, __ATOMIC_ACQ_REL) != 0);
        was_last = __atomic_sub_fetch(&object->references, 1, __ATOMIC_ACQ_REL) == 0;
        if (was_last) {
            object->round = -1;
            free(object);
            __atomic_add_fetch(&freed, 1, __ATOMIC_RELAXED);
        }
        int len = snprintf(line, sizeof line, "%ld %d %d\n", guest_num(arg), r, was_last);
        RETURNS(write(sink, line, (size_t)len), len);
        if (r % 4 == 0)
            guest_pause_us(500);
    }
    ZERO(close(sink));
    return NULL;
}

int main(void)
{

    for (int r = 0; r < ROUNDS; r++) {
        objects[r] = malloc(sizeof *objects[r]);
        CHECK(objects[r] != NULL);
        *objects[r] = (struct object){THREADS, r};
    }
    guest_run(run, THREADS);
    CHECK(freed == ROUNDS);
    return guest_ok();
}
