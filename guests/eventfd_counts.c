// Shows: eventfd as a counter and as a semaphore: many writers, blocking readers, EAGAIN, sum of everything written.
// Breaks if: a read that emptied the counter is lost with the primary, or a write is repeated.
#include "guest.h"
#include <sys/eventfd.h>

enum { WRITERS = 3, ROUNDS = 180 };

static int counter, semaphore;

static void *writer(void *arg)
{
    for (int r = 0; r < ROUNDS; r++) {
        CHECK(eventfd_write(counter, (eventfd_t)guest_num(arg) + 1) == 0);
        CHECK(eventfd_write(semaphore, 1) == 0);
        if (r % 3 == 0)
            guest_pause_us(300);
    }
    return NULL;
}

int main(void)
{
    pthread_t t[WRITERS];
    eventfd_t n, sum = 0, want = ROUNDS * (1 + 2 + 3);
    int ones = 0, nonblock = eventfd(0, EFD_NONBLOCK);

    counter = eventfd(0, EFD_CLOEXEC);
    semaphore = eventfd(0, EFD_SEMAPHORE);
    CHECK(counter >= 0 && semaphore >= 0 && nonblock >= 0);
    FAILS(eventfd_read(nonblock, &n), EAGAIN);
    for (int i = 0; i < WRITERS; i++)
        t[i] = guest_start(writer, guest_ptr(i));
    while (sum < want) {
        CHECK(eventfd_read(counter, &n) == 0 && n > 0);
        sum += n;
    }
    for (; ones < WRITERS * ROUNDS; ones++)
        CHECK(eventfd_read(semaphore, &n) == 0 && n == 1);
    for (int i = 0; i < WRITERS; i++)
        guest_join(t[i]);
    printf("sum %lu, ones %d\n", (unsigned long)sum, ones);
    CHECK(sum == want);
    return guest_ok();
}
