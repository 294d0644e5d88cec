// Shows: threads with stacks of their own making, large and small ones, guards, masks and names from attributes; deep recursion and alloca.
// Breaks if: a stack that the program gave is not the thread's in a copy, or pthread_getattr_np tells another one.
#include "guest.h"
#include <alloca.h>
#include <signal.h>
#include <sys/mman.h>

enum { ROUNDS = 20, OWN = 256 * 1024 };

static long descend(long n, unsigned long seed)
{
    volatile unsigned char *room = (volatile unsigned char *)alloca(300 + n % 100);

    room[0] = (unsigned char)seed;
    if (n % 1000 == 0)
        guest_now_ns(CLOCK_MONOTONIC);
    long below = n ? descend(n - 1, guest_mix(seed)) : 0;
    return below + room[0];
}

static void *shallow(void *arg)
{
    pthread_attr_t attr;
    void *address, *here = &attr;
    size_t size, guard;
    sigset_t mask;

    ZERO(pthread_getattr_np(pthread_self(), &attr));
    ZERO(pthread_attr_getstack(&attr, &address, &size));
    ZERO(pthread_attr_getguardsize(&attr, &guard));
    CHECK((char *)here > (char *)address && (char *)here < (char *)address + size);
    if (arg)
        CHECK(address == arg && size == OWN);
    ZERO(pthread_attr_destroy(&attr));
    ZERO(pthread_sigmask(SIG_BLOCK, NULL, &mask));
    CHECK(sigismember(&mask, SIGUSR1) == (arg != NULL) && sigismember(&mask, SIGUSR2) == (arg == NULL));
    return guest_ptr(descend(200, 1));
}

static void *deep(void *arg)
{
    return guest_ptr(descend(guest_num(arg), 2));
}

int main(void)
{
    unsigned char *own = (unsigned char *)mmap(NULL, OWN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    long sum = 0;
    sigset_t mask;

    CHECK(own != MAP_FAILED);
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR2);
    ZERO(pthread_sigmask(SIG_BLOCK, &mask, NULL));
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    for (int r = 0; r < ROUNDS; r++) {
        pthread_attr_t with, small, large;
        pthread_t a, b, c;
        size_t size;
        ZERO(pthread_attr_init(&with));
        ZERO(pthread_attr_setstack(&with, own, OWN));
        ZERO(pthread_attr_setsigmask_np(&with, &mask));
        ZERO(pthread_attr_init(&small));
        ZERO(pthread_attr_setstacksize(&small, 128 * 1024));
        ZERO(pthread_attr_setguardsize(&small, 65536));
        ZERO(pthread_attr_init(&large));
        ZERO(pthread_attr_setstacksize(&large, 32u << 20));
        ZERO(pthread_attr_getstacksize(&large, &size));
        CHECK(size == 32u << 20);
        ZERO(pthread_create(&a, &with, shallow, own));
        ZERO(pthread_create(&b, &small, shallow, NULL));
        ZERO(pthread_create(&c, &large, deep, guest_ptr(10000 + 1000 * (r % 5))));
        sum += guest_num(guest_join(a)) + guest_num(guest_join(b)) + guest_num(guest_join(c));
        ZERO(pthread_attr_destroy(&with));
        ZERO(pthread_attr_destroy(&small));
        ZERO(pthread_attr_destroy(&large));
        sum += descend(3000, (unsigned long)r);
        guest_pause_us(2000);
    }
    CHECK(munmap(own, OWN) == 0);
    printf("sum %ld\n", sum);
    return guest_ok();
}
