// Shows: blocks allocated in one thread and freed or grown in another: malloc, calloc, realloc, aligned_alloc.
// Breaks if: addresses enter the log or a digest: heaps may drift apart, contents may not.
#include "guest.h"

enum { THREADS = 4, ROUNDS = 60, BATCH = 32 };

struct block {
    struct block *next;
    size_t size;
    uint64_t seed;
    unsigned char data[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block *pool;
static size_t pooled;
static uint64_t freed;

static void put(struct block *b)
{
    ZERO(pthread_mutex_lock(&lock));
    b->next = pool;
    pool = b;
    pooled++;
    ZERO(pthread_mutex_unlock(&lock));
}

static struct block *take(void)
{
    ZERO(pthread_mutex_lock(&lock));
    struct block *b = pool;
    if (b) {
        pool = b->next;
        pooled--;
    }
    ZERO(pthread_mutex_unlock(&lock));
    return b;
}

static struct block *make(uint64_t seed)
{
    size_t size = seed % 5 == 0 ? 20000 + seed % 200000 : 16 + seed % 700;
    struct block *b = (struct block *)(seed % 3 == 0 ? calloc(1, sizeof *b + size)
                                       : seed % 3 == 1 ? malloc(sizeof *b + size)
                                                       : aligned_alloc(64, (sizeof *b + size + 63) / 64 * 64));

    CHECK(b != NULL);
    b->size = size;
    b->seed = seed;
    guest_fill(b->data, size < 256 ? size : 256, seed);
    return b;
}

static void drop(struct block *b)
{
    unsigned char want[256];
    size_t n = b->size < 256 ? b->size : 256;

    if (b->seed % 4 == 0) {
        b = (struct block *)realloc(b, sizeof *b + b->size * 2);
        CHECK(b != NULL);
    }
    guest_fill(want, n, b->seed);
    CHECK(memcmp(want, b->data, n) == 0);
    ZERO(pthread_mutex_lock(&lock));
    freed += b->seed;
    ZERO(pthread_mutex_unlock(&lock));
    free(b);
}

static void *run(void *arg)
{
    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 0; i < BATCH; i++)
            put(make((guest_mix((uint64_t)(guest_num(arg) * 100000 + r * 100 + i))) >> 20));
        guest_pause_us(200);
        for (int i = 0; i < BATCH; i++) {
            struct block *b = take();
            CHECK(b != NULL); /* everyone puts as many as it takes, and puts first */
            drop(b);
        }
    }
    return NULL;
}

int main(void)
{
    pthread_t t[THREADS];

    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, guest_ptr(i));
    for (int i = 0; i < THREADS; i++)
        guest_join(t[i]);
    printf("freed %016lx, left %zu\n", (unsigned long)freed, pooled);
    CHECK(pooled == 0);
    return guest_ok();
}
