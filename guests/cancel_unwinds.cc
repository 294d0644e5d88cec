// Shows: a thread that is cancelled in a system call of libc's own unwinds through all its callers: destructors run.
// Breaks if: unwinders find no way from a door back to the code that came to it.
#include "guest.h"
#include <poll.h>
#include <semaphore.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { ROUNDS = 40, CALLS = 8 };

static int unwound, pair[2];
static pthread_once_t once;
static sem_t nobody_posts;

struct Note {
    ~Note() { unwound++; }
};

static void wait_in(int call)
{
    Note note;
    char byte;
    struct timespec hour = { 3600, 0 };
    struct pollfd fd = { pair[0], POLLIN, 0 };

    switch (call) {
    case 0: nanosleep(&hour, NULL); break;
    case 1: poll(&fd, 1, -1); break;
    case 2: sleep(3600); break;
    case 3: recv(pair[0], &byte, 1, 0); break;
    case 4: select(0, NULL, NULL, NULL, NULL); break;
    case 5: sem_wait(&nobody_posts); break;
    case 6: pause(); break;
    case 7: clock_nanosleep(CLOCK_MONOTONIC, 0, &hour, NULL); break;
    }
    CHECK(!"it is cancelled");
}

static int current;

static void initialise(void)
{
    Note note;

    wait_in(current);
}

static void *run(void *arg)
{
    Note note;

    if (guest_num(arg) % 2 == 0)
        wait_in(current);
    else
        pthread_once(&once, initialise);
    return NULL;
}

static void nothing(void) {}

int main(void)
{
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    CHECK(sem_init(&nobody_posts, 0, 0) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        once = PTHREAD_ONCE_INIT;
        current = r / 2 % CALLS;
        unwound = 0;
        pthread_t thread = guest_start(run, guest_ptr(r));
        guest_pause_us(r % 3 * 700);
        ZERO(pthread_cancel(thread));
        CHECK(guest_join(thread) == PTHREAD_CANCELED);
        /* Cancelled at the wait: everybody's destructor has run, and the initialiser is free for the next. */
        CHECK(unwound == (r % 2 == 0 ? 2 : 3));
        ZERO(pthread_once(&once, nothing));
    }
    return guest_ok();
}
