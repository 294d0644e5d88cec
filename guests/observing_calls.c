// Shows: calls that change nothing (getppid, fstat, stat, readlink, getsockname, getrandom) tell of others' work in its
// order, are never interrupted, and a handler runs in a loop that makes nothing else.
// Breaks if: such a call takes its place in the order before it was made, or no signal is delivered at it.
#include "net.h"
#include <signal.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/time.h>

enum { ROUNDS = 600, WATCHERS = 2, ALARMS = 12 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long done;
static int file;
static struct guest_name path, names[2];
static volatile sig_atomic_t rung;

static void ring(int number)
{
    (void)number;
    rung = 1;
}

static long done_so_far(void)
{
    CHECK(pthread_mutex_lock(&lock) == 0);
    long now = done;
    CHECK(pthread_mutex_unlock(&lock) == 0);
    return now;
}

// A file that grows, and a link that is made anew: what is seen is never older than what is known to be done.
static void *grow(void *arg)
{
    (void)arg;
    for (long n = 1; n <= ROUNDS; n++) {
        char text[24];
        CHECK(ftruncate(file, n) == 0);
        snprintf(text, sizeof text, "%ld", n);
        CHECK(symlink(text, names[1].s) == 0);
        CHECK(rename(names[1].s, names[0].s) == 0);
        CHECK(pthread_mutex_lock(&lock) == 0);
        done = n;
        CHECK(pthread_mutex_unlock(&lock) == 0);
    }
    return NULL;
}

static void *watch(void *arg)
{
    long by_name = guest_num(arg) & 1, last = 0, known;
    do {
        struct stat seen;
        char text[24] = "";
        known = done_so_far();
        CHECK((by_name ? stat(path.s, &seen) : fstat(file, &seen)) == 0);
        CHECK(seen.st_size >= known && seen.st_size >= last);
        last = seen.st_size;
        if (known > 0) {
            CHECK(readlink(names[0].s, text, sizeof text - 1) > 0);
            CHECK(atol(text) >= known);
        }
    } while (known < ROUNDS);
    return NULL;
}

static void each(long round, int listener, const struct sockaddr_in *address)
{
    struct stat seen;
    struct sockaddr_in own;
    socklen_t bytes = sizeof own;
    unsigned char random[300];

    switch (round % 5) {
    case 0:
        CHECK(getppid() > 0);
        break;
    case 1:
        CHECK(fstat(file, &seen) == 0);
        break;
    case 2:
        CHECK(access(path.s, R_OK) == 0);
        break;
    case 3:
        CHECK(getsockname(listener, (struct sockaddr *)&own, &bytes) == 0);
        CHECK(bytes == sizeof own && own.sin_port == address->sin_port);
        break;
    default:
        CHECK(getrandom(random, sizeof random, 0) == sizeof random);
    }
}

int main(void)
{
    pthread_t t[WATCHERS + 1];
    struct sockaddr_in address;
    struct sigaction action = {.sa_handler = ring};

    guest_scratch();
    path = guest_path("grows");
    names[0] = guest_path("link");
    names[1] = guest_path("link.new");
    file = open(path.s, O_RDWR | O_CREAT | O_EXCL, 0600);
    CHECK(file >= 0);

    t[0] = guest_start(grow, NULL);
    for (int i = 0; i < WATCHERS; i++)
        t[i + 1] = guest_start(watch, guest_ptr(i));
    for (int i = 0; i <= WATCHERS; i++)
        guest_join(t[i]);

    // No SA_RESTART: none of these calls says EINTR for all that.
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    int listener = net_bound(SOCK_STREAM, &address);
    for (long n = 0; n < ALARMS; n++) {
        struct itimerval soon = {.it_value = {.tv_usec = 700 + 300 * (n % 3)}};
        rung = 0;
        CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
        while (!rung)
            each(n, listener, &address);
    }
    CHECK(close(listener) == 0 && close(file) == 0);
    CHECK(unlink(path.s) == 0 && unlink(names[0].s) == 0);
    guest_scratch_end();
    return guest_ok();
}
