// Shows: a number closed in one thread is the next thread's new socket; each thread still finds its own bytes behind its numbers.
// Breaks if: an in-doubt close is repeated after a failover and hits the number's new owner (ABA).
// kit: no-checkpoint it sets no SO_REUSEADDR, and the kernel keeps its port for a minute, as natively
#include "net.h"

enum { THREADS = 3, ROUNDS = 60 };

static void *churn(void *arg)
{
    long me = guest_num(arg), bytes = 0;

    for (int r = 0; r < ROUNDS; r++) {
        int ends[2], fd, copy;
        long token = me * 100000 + r, back;
        CHECK(pipe(ends) == 0);
        guest_write_all(ends[1], &token, sizeof token);
        CHECK(close(ends[1]) == 0);
        fd = socket(AF_INET, SOCK_STREAM, 0); /* often the number just closed, or a neighbour's */
        copy = dup(ends[0]);
        CHECK(fd >= 0 && copy >= 0 && close(ends[0]) == 0);
        guest_pause_us(100);
        guest_read_all(copy, &back, sizeof back);
        CHECK(back == token && read(copy, &back, 1) == 0);
        bytes += (long)sizeof back;
        CHECK(close(copy) == 0 && close(fd) == 0);
    }
    return guest_ptr(bytes);
}

static int listener, expected;
static pthread_barrier_t closed, accepted;

static void *acceptor(void *arg)
{
    (void)arg;
    for (int r = 0; r < ROUNDS; r++) {
        pthread_barrier_wait(&closed);
        int fd = accept(listener, NULL, NULL);
        char c;
        CHECK(fd == expected); /* the lowest free number is the one that main has just closed */
        pthread_barrier_wait(&accepted);
        guest_read_all(fd, &c, 1);
        CHECK(c == (char)r && close(fd) == 0);
        pthread_barrier_wait(&closed);
    }
    return NULL;
}

static void hand_over(void)
{
    struct sockaddr_in address;

    listener = net_bound(SOCK_STREAM, &address);
    CHECK(listen(listener, 4) == 0);
    ZERO(pthread_barrier_init(&closed, NULL, 2));
    ZERO(pthread_barrier_init(&accepted, NULL, 2));
    pthread_t t = guest_start(acceptor, NULL);
    for (int r = 0; r < ROUNDS; r++) {
        expected = open("/dev/null", O_RDONLY);
        int client = net_connect(&address);
        CHECK(expected >= 0 && client >= 0 && close(expected) == 0);
        pthread_barrier_wait(&closed);
        pthread_barrier_wait(&accepted);
        guest_write_all(client, &(char){ (char)r }, 1);
        pthread_barrier_wait(&closed);
        CHECK(close(client) == 0);
        guest_pause_us(200);
    }
    guest_join(t);
}

int main(void)
{
    pthread_t t[THREADS];
    long bytes = 0;

    hand_over();
    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(churn, guest_ptr(i));
    for (int i = 0; i < THREADS; i++)
        bytes += guest_num(guest_join(t[i]));
    printf("bytes %ld\n", bytes);
    return guest_ok();
}
