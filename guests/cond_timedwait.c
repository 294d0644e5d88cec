// Shows: pthread_cond_timedwait times out when nobody signals, never early, and returns 0 when the state changed.
// Breaks if: the timeout's outcome is not in the log, or promotion turns a wait into an early ETIMEDOUT.
#include "guest.h"

enum { ROUNDS = 40 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t asked = PTHREAD_COND_INITIALIZER, answered = PTHREAD_COND_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static int question, answer;

static void *answerer(void *arg)
{
    (void)arg;
    ZERO(pthread_mutex_lock(&lock));
    for (int r = 1; r <= ROUNDS; r++) {
        while (question != r)
            ZERO(pthread_cond_wait(&asked, &lock));
        answer = r;
        ZERO(pthread_cond_signal(&answered));
    }
    ZERO(pthread_mutex_unlock(&lock));
    return NULL;
}

static void must_time_out(void)
{
    struct timespec soon = guest_deadline(CLOCK_REALTIME, 500);
    int rc = 0;

    while (rc == 0) /* a spurious wake-up is legal and is no timeout */
        rc = pthread_cond_timedwait(&never, &lock, &soon);
    CHECK(rc == ETIMEDOUT);
    CHECK(guest_now_ns(CLOCK_REALTIME) >= (int64_t)soon.tv_sec * 1000000000 + soon.tv_nsec);
}

int main(void)
{
    pthread_t t = guest_start(answerer, NULL);

    ZERO(pthread_mutex_lock(&lock));
    for (int r = 1; r <= ROUNDS; r++) {
        must_time_out();
        struct timespec far = guest_deadline(CLOCK_REALTIME, 60 * 1000000L);
        question = r;
        ZERO(pthread_cond_signal(&asked));
        while (answer != r)
            ZERO(pthread_cond_timedwait(&answered, &lock, &far));
    }
    ZERO(pthread_mutex_unlock(&lock));
    guest_join(t);
    printf("answers %d\n", answer);
    return guest_ok();
}
