// Shows: threads that write to unbuffered streams while others do: each line's lock waits for a write, and its wake is a call.
// Breaks if: with one thread at a time a wait for a stream's lock, or its wake, is an event: no replay meets either again.
// kit: varies
// kit: serial one thread at a time: who waits for a stream's lock is decided by its turns
#include "guest.h"

enum { THREADS = 8, LINES = 20 };

static void *run(void *arg)
{
    for (int i = 0; i < LINES; i++) {
        printf("thread %ld line %d\n", guest_num(arg), i);
        fprintf(stderr, "thread %ld error %d\n", guest_num(arg), i);
    }
    return NULL;
}

int main(void)
{
    pthread_t t[THREADS];

    setvbuf(stdout, NULL, _IONBF, 0);
    for (int i = 0; i < THREADS; i++) {
        printf("makes %d\n", i);
        t[i] = guest_start(run, guest_ptr(i));
        printf("made %d\n", i);
    }
    for (int i = 0; i < THREADS; i++)
        guest_join(t[i]);
    return guest_ok();
}
