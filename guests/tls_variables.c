// Shows: __thread variables, initialised and zero, are private to each thread and start fresh in a reused thread.
// Breaks if: a recreated thread gets the wrong TLS base, or a thread's TLS block is not its slot's.
#include "guest.h"

enum { THREADS = 4, ROUNDS = 40 };

static __thread int initialised = 1234;
static __thread char zeroed[4096];
static __thread const char *name;

static void *run(void *arg)
{
    long n = guest_num(arg);
    char own[32];

    CHECK(initialised == 1234);
    for (size_t i = 0; i < sizeof zeroed; i++)
        CHECK(zeroed[i] == 0);
    snprintf(own, sizeof own, "thread %ld", n);
    name = own;
    initialised = (int)n;
    for (int i = 0; i < 10; i++) {
        memset(zeroed, (int)n + i, sizeof zeroed);
        errno = (int)n; /* errno is TLS too, and every door must leave it alone on success */
        guest_pause_us(50);
        CHECK(errno == (int)n);
        CHECK(initialised == (int)n && zeroed[4095] == (char)(n + i));
        CHECK(name == own && strtol(name + 7, NULL, 10) == n);
    }
    name = NULL;
    return guest_ptr(initialised);
}

int main(void)
{
    long sum = 0;

    initialised = -1;
    for (int r = 0; r < ROUNDS; r++) {
        pthread_t t[THREADS];
        for (int i = 0; i < THREADS; i++)
            t[i] = guest_start(run, guest_ptr(r * THREADS + i + 1));
        for (int i = 0; i < THREADS; i++)
            sum += guest_num(guest_join(t[i]));
    }
    CHECK(initialised == -1 && zeroed[0] == 0);
    printf("sum %ld\n", sum);
    return guest_ok();
}
