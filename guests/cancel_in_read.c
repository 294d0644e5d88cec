// Shows: a thread blocked in read() on a pipe is cancelled; no byte is lost, the next reader gets them all.
// Breaks if: cancellation is swallowed by a recorded call, or a byte is consumed by the cancelled one.
#include "guest.h"

enum { ROUNDS = 60 };

static int ends[2];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long cancelled;

static void note(void *arg)
{
    (void)arg;
    ZERO(pthread_mutex_lock(&lock));
    cancelled++;
    ZERO(pthread_mutex_unlock(&lock));
}

static void *reader(void *arg)
{
    char c;

    (void)arg;
    pthread_cleanup_push(note, NULL);
    if (read(ends[0], &c, 1) >= 0)
        guest_fail(__FILE__, __LINE__, "the pipe is empty: read must not return", 0);
    pthread_cleanup_pop(0);
    return NULL;
}

int main(void)
{
    char text[32], back[32];

    CHECK(pipe(ends) == 0);
    for (int r = 0; r < ROUNDS; r++) {
        pthread_t t = guest_start(reader, NULL);
        if (r % 2)
            guest_pause_us(300); /* odd rounds: it is asleep in read; even ones: maybe not there yet */
        ZERO(pthread_cancel(t));
        CHECK(guest_join(t) == PTHREAD_CANCELED);
        int n = snprintf(text, sizeof text, "round %d", r);
        guest_write_all(ends[1], text, (size_t)n);
        CHECK(read(ends[0], back, sizeof back) == n);
        CHECK(memcmp(text, back, (size_t)n) == 0);
        guest_pause_us(100);
    }
    printf("cancelled %ld\n", cancelled);
    CHECK(cancelled == ROUNDS);
    return guest_ok();
}
