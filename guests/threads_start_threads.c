// Shows: threads that do nothing but start and join others stand still in the middle of it, and go on.
// Breaks if: one that has stood still in libc's pthread_create takes itself for a copy's, and reads what it has logged itself.
#include "guest.h"

enum { STARTERS = 3, ROUNDS = 30, IMAGE_BYTES = 2 << 20 };

/* Which libc lays out for each new thread: most of the time is spent inside its pthread_create. */
static __thread char image[IMAGE_BYTES] = { 1, 2, 3 };

static void *answer(void *arg)
{
    CHECK(image[0] == 1 && image[IMAGE_BYTES - 1] == 0);
    image[0]++;
    return arg;
}

static void *start(void *arg)
{
    for (long r = 0; r < ROUNDS; r++)
        CHECK(guest_num(guest_join(guest_start(answer, guest_ptr(r)))) == r);
    return arg;
}

int main(void)
{
    pthread_t t[STARTERS];

    for (int i = 0; i < STARTERS; i++)
        t[i] = guest_start(start, NULL);
    for (int i = 0; i < STARTERS; i++)
        guest_join(t[i]);
    return guest_ok();
}
