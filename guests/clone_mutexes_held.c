// Shows: recursive, error-checking and robust mutexes that stay held while a new standby is made know their owner and depth.
// Breaks if: a clone loses who holds a mutex: the owner gets EPERM, a stranger gets in, or an owner's death goes unnoticed.
#include "guest.h"

enum { KINDS = 3, ROUNDS = 40, DEPTH = 5 };

static pthread_mutex_t lock[KINDS]; /* recursive, error-checking, robust */
static long held[KINDS], deaths;

static void make(int kind)
{
    pthread_mutexattr_t attr;

    ZERO(pthread_mutexattr_init(&attr));
    if (kind == 0)
        ZERO(pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE));
    if (kind == 1)
        ZERO(pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK));
    if (kind == 2)
        ZERO(pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST));
    ZERO(pthread_mutex_init(&lock[kind], &attr));
}

/* A robust mutex may have lost its owner. */
static void enter(int kind)
{
    int rc = pthread_mutex_lock(&lock[kind]);

    if (rc == EOWNERDEAD) {
        CHECK(kind == 2);
        deaths++;
        ZERO(pthread_mutex_consistent(&lock[kind]));
    } else {
        CHECK(rc == 0);
    }
}

static void *die_holding(void *arg)
{
    enter((int)guest_num(arg));
    guest_pause_us(1500);
    return NULL;
}

/* Holds its mutex most of the time, so that it is held at almost any moment. */
static void *hold(void *arg)
{
    int kind = (int)guest_num(arg);

    for (int r = 0; r < ROUNDS; r++) {
        enter(kind);
        long before = held[kind]++;
        for (int d = 1; kind == 0 && d < DEPTH; d++)
            ZERO(pthread_mutex_lock(&lock[kind]));
        guest_pause_us(2000);
        CHECK(held[kind] == before + 1);
        if (kind == 1)
            RETURNS(pthread_mutex_lock(&lock[kind]), EDEADLK);
        for (int d = 1; kind == 0 && d < DEPTH; d++)
            ZERO(pthread_mutex_unlock(&lock[kind]));
        ZERO(pthread_mutex_unlock(&lock[kind]));
        if (kind != 2)
            RETURNS(pthread_mutex_unlock(&lock[kind]), EPERM);
        if (kind == 2 && r % 8 == 0)
            guest_join(guest_start(die_holding, guest_ptr(kind)));
        guest_pause_us(200);
    }
    return NULL;
}

/* A stranger: never gets in while the owner is inside, whoever that is by now. */
static void *knock(void *arg)
{
    long tried = 0;

    (void)arg;
    for (int r = 0; r < 4 * ROUNDS; r++)
        for (int kind = 0; kind < 2; kind++) {
            int rc = pthread_mutex_trylock(&lock[kind]);
            CHECK(rc == 0 || rc == EBUSY);
            if (rc == 0)
                ZERO(pthread_mutex_unlock(&lock[kind]));
            tried++;
            guest_pause_us(200);
        }
    return guest_ptr(tried);
}

int main(void)
{
    pthread_t t[KINDS + 1];

    for (int k = 0; k < KINDS; k++)
        make(k);
    for (int k = 0; k < KINDS; k++)
        t[k] = guest_start(hold, guest_ptr(k));
    t[KINDS] = guest_start(knock, NULL);
    for (int k = 0; k < KINDS; k++)
        guest_join(t[k]);
    long tried = guest_num(guest_join(t[KINDS]));
    enter(2);
    printf("held %ld %ld %ld, deaths %ld, tried %ld\n", held[0], held[1], held[2], deaths, tried);
    ZERO(pthread_mutex_unlock(&lock[2]));
    return guest_ok();
}
