// Shows: threads write numbered records to one FILE; every record is whole and there exactly once (fprintf, fscanf, sscanf).
// Breaks if: the buffer's content differs between copies: a failover then repeats or loses a flush.
#include "guest.h"

enum { THREADS = 4, ROUNDS = 480 };

static FILE *file;
static unsigned char seen[THREADS][ROUNDS];

static void *run(void *arg)
{
    for (int r = 0; r < ROUNDS; r++) {
        CHECK(fprintf(file, "record %ld %d %08x\n", guest_num(arg), r, (unsigned)guest_mix(r)) > 0);
        if (r % 8 == 0)
            guest_pause_us(300);
    }
    return NULL;
}

int main(void)
{
    pthread_t t[THREADS];
    unsigned thread, round, check;
    int n = 0;

    guest_scratch();
    struct guest_name name = guest_path("records");
    file = fopen(name.s, "w+");
    CHECK(file != NULL);
    CHECK(setvbuf(file, NULL, _IOFBF, 512) == 0);
    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, guest_ptr(i));
    for (int i = 0; i < THREADS; i++)
        guest_join(t[i]);
    rewind(file);
    for (; fscanf(file, "record %u %u %x\n", &thread, &round, &check) == 3; n++) {
        char text[16];
        unsigned again;
        CHECK(thread < THREADS && round < ROUNDS && check == (unsigned)guest_mix(round));
        CHECK(seen[thread][round]++ == 0);
        snprintf(text, sizeof text, "%x", check);
        CHECK(sscanf(text, "%x", &again) == 1 && again == check);
    }
    CHECK(feof(file));
    CHECK(fclose(file) == 0);
    CHECK(unlink(name.s) == 0);
    guest_scratch_end();
    printf("records %d\n", n);
    CHECK(n == THREADS * ROUNDS);
    return guest_ok();
}
