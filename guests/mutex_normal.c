// Shows: a plain mutex excludes; four threads move units between accounts under two ordered locks.
// Breaks if: a ticket is taken outside the critical section, or an unlock is replayed before its writes.
#include "guest.h"

enum { THREADS = 4, ACCOUNTS = 16, ROUNDS = 60, MOVES = 300 };

static struct {
    pthread_mutex_t lock;
    long units;
} account[ACCOUNTS];
static pthread_mutex_t total_lock = PTHREAD_MUTEX_INITIALIZER;
static long moved;

static void move(unsigned from, unsigned to, long units)
{
    unsigned first = from < to ? from : to, second = from < to ? to : from;

    ZERO(pthread_mutex_lock(&account[first].lock));
    ZERO(pthread_mutex_lock(&account[second].lock));
    account[from].units -= units;
    account[to].units += units;
    ZERO(pthread_mutex_unlock(&account[second].lock));
    ZERO(pthread_mutex_unlock(&account[first].lock));
}

static void *run(void *arg)
{
    uint64_t x = (uint64_t)guest_num(arg);

    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 0; i < MOVES; i++) {
            x = guest_mix(x);
            unsigned from = x % ACCOUNTS, to = (from + 1 + (x >> 8) % (ACCOUNTS - 1)) % ACCOUNTS;
            move(from, to, (long)(x >> 20) % 100);
        }
        ZERO(pthread_mutex_lock(&total_lock));
        moved += MOVES;
        ZERO(pthread_mutex_unlock(&total_lock));
        guest_pause_us(400);
    }
    return NULL;
}

int main(void)
{
    pthread_t t[THREADS];
    long sum = 0;

    for (int i = 0; i < ACCOUNTS; i++) {
        ZERO(pthread_mutex_init(&account[i].lock, NULL));
        account[i].units = 1000;
    }
    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, guest_ptr(i + 1));
    for (int i = 0; i < THREADS; i++)
        guest_join(t[i]);
    for (int i = 0; i < ACCOUNTS; i++) {
        sum += account[i].units;
        printf("account %d: %ld\n", i, account[i].units);
        ZERO(pthread_mutex_destroy(&account[i].lock));
    }
    CHECK(sum == 1000L * ACCOUNTS);
    CHECK(moved == (long)THREADS * ROUNDS * MOVES);
    return guest_ok();
}
