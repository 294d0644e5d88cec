// Shows: O_APPEND: every write of every thread, through descriptors of their own, lands whole at the end.
// Breaks if: an in-doubt append is repeated after a failover (a record twice), or dropped.
#include "guest.h"

enum { THREADS = 4, ROUNDS = 60 };

static struct guest_name name;

static void *run(void *arg)
{
    int fd = open(name.s, O_WRONLY | O_APPEND | O_CREAT, 0600);
    char text[32];

    CHECK(fd >= 0);
    for (int r = 0; r < ROUNDS; r++) {
        int n = snprintf(text, sizeof text, "%02ld:%04d\n", guest_num(arg), r);
        CHECK(write(fd, text, (size_t)n) == n);
        guest_pause_us(300);
    }
    CHECK(close(fd) == 0);
    return NULL;
}

int main(void)
{
    pthread_t t[THREADS];
    int next[THREADS] = { 0 }, thread, round, lines = 0;

    guest_scratch();
    name = guest_path("log");
    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, guest_ptr(i));
    for (int i = 0; i < THREADS; i++)
        guest_join(t[i]);
    FILE *file = fopen(name.s, "r");
    CHECK(file != NULL);
    for (; fscanf(file, "%d:%d\n", &thread, &round) == 2; lines++)
        CHECK(next[thread]++ == round);
    CHECK(fclose(file) == 0 && unlink(name.s) == 0);
    guest_scratch_end();
    printf("lines %d\n", lines);
    CHECK(lines == THREADS * ROUNDS);
    return guest_ok();
}
