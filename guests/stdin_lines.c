// Shows: stdin given by the starter is read line by line while other threads work.
// Breaks if: the standby reads the shared stdin itself: lines are lost.
// kit: stdin one 1\ntwo 2\nthree 3\nfour 4\nfive 5\n
// kit: no-checkpoint its input comes from outside
#include "guest.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int stop;

static void *busy(void *arg)
{
    (void)arg;
    for (int over = 0; !over; ) {
        ZERO(pthread_mutex_lock(&lock));
        over = stop;
        ZERO(pthread_mutex_unlock(&lock));
        guest_pause_us(100);
    }
    return NULL;
}

int main(void)
{
    pthread_t t = guest_start(busy, NULL);
    char word[32], c;
    int number, lines = 0;

    /* One byte at a time: each is an event of its own. */
    for (size_t n = 0; read(0, &c, 1) == 1; ) {
        CHECK(n < sizeof word - 1);
        word[n++] = c;
        guest_pause_us(600);
        if (c != '\n')
            continue;
        word[n] = 0;
        CHECK(sscanf(word, "%*s %d", &number) == 1 && number == ++lines);
        printf("line %d: %s", lines, word);
        n = 0;
    }
    ZERO(pthread_mutex_lock(&lock));
    stop = 1;
    ZERO(pthread_mutex_unlock(&lock));
    guest_join(t);
    CHECK(lines == 5);
    return guest_ok();
}
