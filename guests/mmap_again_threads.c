// Shows: several threads map files and memory for a moment each, again and again, and unmap what another has mapped; each
// mapping holds what it should and lies in every copy where the others' data says it does. One is kept behind its descriptor.
// Breaks if: a standby maps where another thread's mapping still is, takes a new mapping away with an old one, or has lost
// the file of a mapping whose descriptor is closed.
#include "guest.h"
#include <sys/mman.h>

enum { THREADS = 4, ROUNDS = 300, PAGE = 4096, SIZE = 3 * PAGE };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* What one thread has mapped and the next one takes away. */
static uint64_t *handed;
static size_t handed_bytes;
static struct guest_name name;
static int null_fd;

static void hand_over(uint64_t *memory, size_t bytes)
{
    ZERO(pthread_mutex_lock(&lock));
    uint64_t *old = handed;
    size_t old_bytes = handed_bytes;
    handed = memory;
    handed_bytes = bytes;
    ZERO(pthread_mutex_unlock(&lock));
    if (old) {
        CHECK(old[0] == old_bytes && old[old_bytes / 8 - 1] == ~old_bytes);
        CHECK(munmap(old, old_bytes) == 0);
    }
}

static void *run(void *arg)
{
    uint64_t seed = (uint64_t)(uintptr_t)arg;

    for (int r = 0; r < ROUNDS; r++) {
        int fd = open(name.s, O_RDONLY | O_CLOEXEC);
        const uint64_t *page = (const uint64_t *)mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, 0);
        CHECK(fd >= 0 && page != MAP_FAILED);
        CHECK(page[0] == 7 && page[SIZE / 8 - 1] == 9);
        /* A copy that has it elsewhere writes something else. */
        CHECK(write(null_fd, &page, sizeof page) == (ssize_t)sizeof page);
        CHECK(munmap((void *)page, SIZE) == 0 && close(fd) == 0);
        size_t bytes = (1 + guest_mix(seed * 1000 + (uint64_t)r) % 4) * PAGE;
        uint64_t *memory = (uint64_t *)mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(memory != MAP_FAILED && memory[0] == 0 && memory[bytes / 8 - 1] == 0);
        memory[0] = bytes;
        memory[bytes / 8 - 1] = ~bytes;
        CHECK(write(null_fd, &memory, sizeof memory) == (ssize_t)sizeof memory);
        hand_over(memory, bytes);
    }
    return NULL;
}

int main(void)
{
    guest_scratch();
    name = guest_path("file");
    null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    int fd = open(name.s, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    uint64_t first = 7, last = 9;
    CHECK(fd >= 0 && null_fd >= 0 && pwrite(fd, &first, 8, 0) == 8 && pwrite(fd, &last, 8, SIZE - 8) == 8);
    int other = open(name.s, O_RDONLY | O_CLOEXEC);
    const volatile uint64_t *kept = (const volatile uint64_t *)mmap(NULL, SIZE, PROT_READ, MAP_SHARED, other, 0);
    CHECK(other >= 0 && kept != MAP_FAILED && dup2(fd, other) == other && close(other) == 0);
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        threads[i] = guest_start(run, (void *)(i + 1));
    for (int i = 0; i < THREADS; i++)
        guest_join(threads[i]);
    hand_over(NULL, 0);
    uint64_t middle = 8;
    CHECK(pwrite(fd, &middle, 8, PAGE) == 8);
    CHECK(kept[0] == 7 && kept[PAGE / 8] == 8);
    CHECK(unlink(name.s) == 0);
    guest_scratch_end();
    return guest_ok();
}
