// Shows: stores through a shared mapping of a file, for a long time and from two threads, are in the file at the end.
// Breaks if: a new standby, which cannot share the mapping, keeps its stores to itself when it takes over.
// kit: allow unprotected protection ends at the mapping, and comes back
#include "guest.h"
#include <sys/mman.h>

enum { ROUNDS = 150, SIZE = 16384, CELLS = SIZE / 8, THREADS = 2 };

static uint64_t *cells;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t stores;

static void *run(void *arg)
{
    (void)arg;
    for (int r = 0; r < ROUNDS; r++) {
        ZERO(pthread_mutex_lock(&lock));
        for (int i = 0; i < 8; i++, stores++)
            cells[guest_mix(stores) % CELLS] += stores;
        ZERO(pthread_mutex_unlock(&lock));
        guest_pause_us(800);
    }
    return NULL;
}

int main(void)
{
    static uint64_t expected[CELLS], found[CELLS];
    pthread_t t[THREADS];

    guest_scratch();
    struct guest_name name = guest_path("shared");
    int fd = open(name.s, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && ftruncate(fd, SIZE) == 0);
    cells = (uint64_t *)mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(cells != MAP_FAILED);
    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, NULL);
    for (int i = 0; i < THREADS; i++)
        guest_join(t[i]);
    CHECK(munmap(cells, SIZE) == 0);
    for (uint64_t n = 0; n < stores; n++)
        expected[guest_mix(n) % CELLS] += n;
    CHECK(pread(fd, found, SIZE, 0) == SIZE);
    CHECK(memcmp(expected, found, SIZE) == 0);
    printf("stores %lu, digest %016lx\n", (unsigned long)stores, (unsigned long)guest_digest(found, SIZE));
    CHECK(close(fd) == 0 && unlink(name.s) == 0);
    guest_scratch_end();
    return guest_ok();
}
