// Shows: threads share one input FILE: each getline takes a whole line, every line goes to exactly one thread.
// Breaks if: who got which line is not replayed, or a buffer refill is read again after a failover.
#include "guest.h"

enum { THREADS = 3, LINES = 3000 };

static FILE *file;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long sum, lines;

static void *run(void *arg)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t n;

    (void)arg;
    while ((n = getline(&line, &room, file)) > 0) {
        CHECK(line[n - 1] == '\n' && strncmp(line, "number ", 7) == 0);
        ZERO(pthread_mutex_lock(&lock));
        sum += strtol(line + 7, NULL, 10);
        int pause = ++lines % 30 == 0;
        ZERO(pthread_mutex_unlock(&lock));
        if (pause)
            guest_pause_us(500);
    }
    free(line);
    return NULL;
}

int main(void)
{
    pthread_t t[THREADS];

    guest_scratch();
    struct guest_name name = guest_path("lines");
    file = fopen(name.s, "w");
    CHECK(file != NULL);
    for (int i = 0; i < LINES; i++)
        CHECK(fprintf(file, "number %d and %*d\n", i, 1 + i % 60, 0) > 0);
    CHECK(fclose(file) == 0);
    file = fopen(name.s, "r");
    CHECK(file != NULL);
    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, NULL);
    for (int i = 0; i < THREADS; i++)
        guest_join(t[i]);
    CHECK(fclose(file) == 0 && unlink(name.s) == 0);
    guest_scratch_end();
    printf("lines %ld, sum %ld\n", lines, sum);
    CHECK(lines == LINES && sum == (long)LINES * (LINES - 1) / 2);
    return guest_ok();
}
