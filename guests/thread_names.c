// Shows: a thread sets and reads its name; the main thread's name is the program's until it is changed.
// Breaks if: the standby's own name (it says what it is in ps) shows through to the guest after a failover.
#include "guest.h"
#include <sys/prctl.h>

enum { THREADS = 4, ROUNDS = 40 };

static void *run(void *arg)
{
    char want[16], got[16];

    for (int r = 0; r < ROUNDS; r++) {
        snprintf(want, sizeof want, "worker %ld/%d", guest_num(arg), r);
        ZERO(pthread_setname_np(pthread_self(), want));
        guest_pause_us(400);
        ZERO(pthread_getname_np(pthread_self(), got, sizeof got));
        CHECK(strcmp(want, got) == 0);
        CHECK(prctl(PR_GET_NAME, got) == 0 && strcmp(want, got) == 0);
    }
    return NULL;
}

int main(void)
{
    pthread_t t[THREADS];
    char before[16], after[16];

    CHECK(prctl(PR_GET_NAME, before) == 0);
    CHECK(strncmp(before, program_invocation_short_name, 15) == 0);
    for (int i = 0; i < THREADS; i++)
        t[i] = guest_start(run, guest_ptr(i));
    for (int i = 0; i < THREADS; i++)
        guest_join(t[i]);
    CHECK(prctl(PR_GET_NAME, after) == 0 && strcmp(before, after) == 0);
    CHECK(prctl(PR_SET_NAME, "a new name") == 0);
    guest_pause_us(1000);
    ZERO(pthread_getname_np(pthread_self(), after, sizeof after));
    printf("main was %s, is %s\n", before, after);
    return guest_ok();
}
