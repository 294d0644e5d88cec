// Shows: thousands of short threads, created and joined in waves; stacks and ids are reused.
// Breaks if: thread slots or rings are never given back, or a child starts before its creation is published.
#include "guest.h"

enum { WAVES = 250, WIDTH = 8 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long ran;

static void *brief(void *arg)
{
    long n = guest_num(arg);

    ZERO(pthread_mutex_lock(&lock));
    ran++;
    ZERO(pthread_mutex_unlock(&lock));
    return guest_ptr(n * n);
}

int main(void)
{
    long sum = 0;

    for (int w = 0; w < WAVES; w++) {
        pthread_t t[WIDTH];
        for (int i = 0; i < WIDTH; i++)
            t[i] = guest_start(brief, guest_ptr(w * WIDTH + i));
        for (int i = WIDTH - 1; i >= 0; i--) {
            long n = w * WIDTH + i, result = guest_num(guest_join(t[i]));
            CHECK(result == n * n);
            sum += result;
        }
    }
    printf("threads %ld, sum %ld\n", ran, sum);
    CHECK(ran == WAVES * WIDTH);
    return guest_ok();
}
