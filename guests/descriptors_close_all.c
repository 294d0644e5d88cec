// Shows: a program that closes every descriptor above 2, as daemons do at start, and again later; its own work goes on.
// Breaks if: the runtime keeps descriptors of its own in the guest's table and loses them here, or the calls hit them.
#include "guest.h"
#include <sys/resource.h>

enum { ROUNDS = 25 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long count;

static void *run(void *arg)
{
    (void)arg;
    for (int r = 0; r < ROUNDS; r++) {
        ZERO(pthread_mutex_lock(&lock));
        count++;
        ZERO(pthread_mutex_unlock(&lock));
        guest_pause_us(400);
    }
    return NULL;
}

int main(void)
{
    for (int way = 0; way < 3; way++) {
        pthread_t a = guest_start(run, NULL), b = guest_start(run, NULL);
        for (int r = 0; r < ROUNDS; r++) {
            int ends[2];
            char c;
            if (way == 0)
                CHECK(close_range(3, ~0U, 0) == 0);
            else if (way == 1)
                closefrom(3);
            else
                for (int fd = 3; fd < 1024; fd++)
                    close(fd);
            CHECK(pipe(ends) == 0 && ends[0] == 3 && ends[1] == 4);
            guest_write_all(ends[1], "x", 1);
            guest_read_all(ends[0], &c, 1);
            guest_pause_us(300);
        }
        guest_join(a);
        guest_join(b);
    }
    printf("count %ld\n", count);
    return guest_ok();
}
