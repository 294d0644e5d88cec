/* An interpreter's lock: one word and one condition, and a flag that its holder reads without a lock. Who includes this says by WAIT_US how
 * long one waits for it, us, until it sets the flag. */
#ifndef INTERPRETER_LOCK_H
#define INTERPRETER_LOCK_H

#include "guest.h"

/* Somebody has waited for long: the holder gives the lock away for a moment. */
static volatile int asked;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t free_now = PTHREAD_COND_INITIALIZER;
static int taken;

static void take(void)
{
    ZERO(pthread_mutex_lock(&lock));
    while (taken) {
        struct timespec soon = guest_deadline(CLOCK_REALTIME, WAIT_US);
        if (pthread_cond_timedwait(&free_now, &lock, &soon) == ETIMEDOUT && taken)
            asked = 1;
    }
    taken = 1;
    asked = 0;
    ZERO(pthread_mutex_unlock(&lock));
}

static void drop(void)
{
    ZERO(pthread_mutex_lock(&lock));
    taken = 0;
    ZERO(pthread_cond_signal(&free_now));
    ZERO(pthread_mutex_unlock(&lock));
}

#endif
