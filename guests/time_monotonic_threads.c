// Shows: the monotonic clock never goes back, also when it is read by one thread after another under a lock;
//        time(), gettimeofday() and clock_gettime(REALTIME) agree; process CPU time grows.
// Breaks if: times are read by each copy for itself, or a clock jumps back at a failover.
#include "guest.h"
#include <sys/time.h>

enum { THREADS = 4, ROUNDS = 50, READS = 60 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int64_t last;
static long reads;

static void *run(void *arg)
{
    int64_t cpu = 0;

    (void)arg;
    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 0; i < READS; i++) {
            ZERO(pthread_mutex_lock(&lock));
            int64_t now = guest_now_ns(CLOCK_MONOTONIC);
            CHECK(now >= last);
            last = now;
            reads++;
            ZERO(pthread_mutex_unlock(&lock));
        }
        struct timeval tv;
        int64_t a = guest_now_ns(CLOCK_REALTIME);
        CHECK(gettimeofday(&tv, NULL) == 0);
        int64_t b = (int64_t)tv.tv_sec * 1000000000 + (int64_t)tv.tv_usec * 1000;
        CHECK(b >= a - 1000);
        /* time() may read the tick, which lags the fine clock by up to some milliseconds. */
        CHECK(time(NULL) >= a / 1000000000 - 1);
        int64_t now_cpu = guest_now_ns(CLOCK_THREAD_CPUTIME_ID);
        CHECK(now_cpu >= cpu);
        cpu = now_cpu;
        guest_pause_us(300);
    }
    return NULL;
}

int main(void)
{
    pthread_t t[THREADS];
    struct timespec res;

    CHECK(clock_getres(CLOCK_MONOTONIC, &res) == 0 && res.tv_sec == 0);
    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, NULL);
    for (int i = 0; i < THREADS; i++)
        guest_join(t[i]);
    printf("reads %ld\n", reads);
    return guest_ok();
}
