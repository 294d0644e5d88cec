// Shows: a shared, writable mapping: counters in it survive, read() sees stores at once, msync, and stores see pwrite.
// Breaks if: primary and standby both write the one shared page: every increment then counts twice.
// kit: allow unprotected a writable shared mapping of a file costs the standby
// kit: allow diverged its next one has stores of its own, and does not see what comes by pwrite
// kit: no-kill without a standby nobody takes over
// kit: no-record a replay's copy of a mapping does not see what is written to the file by another way
#include "guest.h"
#include <sys/mman.h>

enum { THREADS = 3, ROUNDS = 60, INNER = 100, SIZE = 8192 };

static long *counters;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *run(void *arg)
{
    long me = guest_num(arg);

    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 0; i < INNER; i++) {
            ZERO(pthread_mutex_lock(&lock));
            counters[0]++;
            counters[512 + me]++; /* on the second page */
            ZERO(pthread_mutex_unlock(&lock));
        }
        guest_pause_us(300);
    }
    return NULL;
}

int main(void)
{
    pthread_t t[THREADS];
    long n;

    guest_scratch();
    struct guest_name name = guest_path("shared");
    int fd = open(name.s, O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0 && ftruncate(fd, SIZE) == 0);
    counters = (long *)mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(counters != MAP_FAILED);
    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, guest_ptr(i));
    for (int i = 0; i < THREADS; i++)
        guest_join(t[i]);
    CHECK(pread(fd, &n, sizeof n, 0) == sizeof n && n == counters[0]);
    CHECK(msync(counters, SIZE, MS_SYNC) == 0);
    n = -5;
    CHECK(pwrite(fd, &n, sizeof n, 8) == sizeof n && counters[1] == -5);
    printf("total %ld, threads %ld %ld %ld\n", counters[0], counters[512], counters[513], counters[514]);
    CHECK(counters[0] == (long)THREADS * ROUNDS * INNER);
    CHECK(munmap(counters, SIZE) == 0 && close(fd) == 0 && unlink(name.s) == 0);
    guest_scratch_end();
    return guest_ok();
}
