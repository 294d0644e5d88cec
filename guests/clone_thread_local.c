// Shows: thread-local variables, keys and errno of many threads, before and after a standby was made of them.
// Breaks if: a thread of the copy gets another's thread-local memory, or a key's destructor runs twice or never.
#include "guest.h"

enum { THREADS = 6, ROUNDS = 60 };

static __thread uint64_t counter;
static __thread char block[3000];
static __thread long *self;
static pthread_key_t key;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long destroyed;

static void destroy(void *value)
{
    CHECK(*(long *)value == ROUNDS);
    free(value);
    ZERO(pthread_mutex_lock(&lock));
    destroyed++;
    ZERO(pthread_mutex_unlock(&lock));
}

static void *run(void *arg)
{
    uint64_t me = (uint64_t)guest_num(arg);
    long *mine = (long *)calloc(1, sizeof *mine);

    CHECK(mine != NULL && counter == 0 && block[0] == 0 && self == NULL);
    ZERO(pthread_setspecific(key, mine));
    self = mine;
    for (int r = 0; r < ROUNDS; r++) {
        errno = (int)me + 1;
        counter = guest_mix(counter ^ me);
        memset(block, (int)(counter & 127), sizeof block);
        *mine += 1;
        ZERO(pthread_mutex_lock(&lock));
        ZERO(pthread_mutex_unlock(&lock));
        CHECK(errno == (int)me + 1);
        guest_pause_us(800 + 100 * (long)me);
        CHECK(self == mine && pthread_getspecific(key) == mine && *mine == r + 1);
        CHECK(block[0] == (char)(counter & 127) && block[sizeof block - 1] == block[0]);
    }
    return guest_ptr((long)(counter >> 8));
}

int main(void)
{
    pthread_t t[THREADS];

    ZERO(pthread_key_create(&key, destroy));
    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, guest_ptr(i));
    for (int i = 0; i < THREADS; i++)
        printf("%lx\n", guest_num(guest_join(t[i])));
    printf("destroyed %ld\n", destroyed);
    return guest_ok();
}
