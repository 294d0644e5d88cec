// Shows: a thread that has computed under a lock and waits without it, while another one goes on with that lock, and kills meanwhile.
// Breaks if: a copy goes no further than its primary has said, and nothing is said where a thread begins to wait: it keeps the lock.
// kit: no-record a recording ends with a signal that was due in a thread that computes
// kit: allow unprotected the first signal comes where nothing is counted yet; behind that a standby follows
// kit: allow standby_lost a kill may meet the copy that is given up for the next one
#include "computing.h"
#include "guest.h"
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

enum { THREADS = 3, FIRST = 150000, STEPS = 20, ROUNDS = 25, LINES = 20, PERIOD_US = 4000 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int waiting, round_now;
static unsigned long sums[THREADS];

static void on_alarm(int signal)
{
    (void)signal;
}

/* In one place: what is counted in the beginning is counted later on. */
__attribute__((noinline)) static unsigned long steps(unsigned long x, int count)
{
    for (int i = 0; i < count; i++)
        x = step(x);
    return x;
}

/* Computes under the lock, and waits for the next round. */
static void *run(void *arg)
{
    long self = guest_num(arg);

    pthread_mutex_lock(&lock);
    for (int r = 0; r < ROUNDS; r++) {
        sums[self] = steps(sums[self], STEPS);
        waiting++;
        while (round_now <= r)
            pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

int main(void)
{
    struct itimerval every = { { 0, PERIOD_US }, { 0, PERIOD_US } }, never = { { 0, 0 }, { 0, 0 } };
    struct sigaction action = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
    pthread_t threads[THREADS];
    unsigned long sum = 1;

    setvbuf(stdout, NULL, _IOLBF, 0);
    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &every, NULL) == 0);
    sum = steps(sum, FIRST);
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    printf("sum %lx\n", sum);
    for (int t = 0; t < THREADS; t++)
        threads[t] = guest_start(run, guest_ptr(t));
    for (int r = 0; r < ROUNDS; r++) {
        for (int all = 0; !all;) {
            pthread_mutex_lock(&lock);
            all = waiting == THREADS * (r + 1);
            pthread_mutex_unlock(&lock);
            guest_pause_us(500);
        }
        /* They wait; this one goes on. */
        for (int i = 0; i < LINES; i++) {
            pthread_mutex_lock(&lock);
            pthread_mutex_unlock(&lock);
            printf("round %d line %d\n", r, i);
            guest_pause_us(500);
        }
        pthread_mutex_lock(&lock);
        round_now = r + 1;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
    }
    for (int t = 0; t < THREADS; t++)
        guest_join(threads[t]);
    printf("sums %lx %lx %lx\n", sums[0], sums[1], sums[2]);
    return guest_ok();
}
