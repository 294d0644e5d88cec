// Shows: dlopen, dlsym and dlclose from several threads; the constructor and lookups see one library.
// Breaks if: the loader's lock is not a door, or the library's system call sites are not entered through one.
// kit: allow diverged the loader's own lock is behind every door: which thread loads a library is not ordered
// kit: allow standby_lost as above
// kit: allow unprotected as above
// kit: no-kill without a standby nobody takes over
// kit: serial one thread at a time: its threads, or processes, do to each other what no lock orders
#include "guest.h"
#include <dlfcn.h>

enum { THREADS = 3, ROUNDS = 40 };

static void *run(void *arg)
{
    double sum = 0;

    (void)arg;
    for (int r = 0; r < ROUNDS; r++) {
        void *library = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
        CHECK(library != NULL);
        double (*cosine)(double) = (double (*)(double))dlsym(library, "cos");
        CHECK(cosine != NULL && cosine(0.0) == 1.0);
        sum += cosine(0.0) * (r + 1);
        CHECK(dlsym(library, "no_such_symbol_here") == NULL && dlerror() != NULL);
        CHECK(dlclose(library) == 0);
        guest_pause_us(300);
    }
    return guest_ptr((long)sum);
}

int main(void)
{
    pthread_t t[THREADS];
    long sum = 0;

    CHECK(dlopen("libno-such-library.so.9", RTLD_NOW) == NULL);
    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, NULL);
    for (int i = 0; i < THREADS; i++)
        sum += guest_num(guest_join(t[i]));
    printf("sum %ld\n", sum);
    return guest_ok();
}
