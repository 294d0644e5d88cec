// Shows: processes that share a megabyte compute, without a call, until an alarm of their own ends that.
// Breaks if: a copy takes over while such a process waits for its turn where it was parked, and goes on with every signal blocked.
// kit: tree
// kit: family the end of one standby is the end of all
// kit: allow unprotected a signal to a process that computes costs the standbys, and new ones are made
// kit: allow standby_lost the same
// kit: allow diverged who computes is passed over, and then nothing orders what it reads
// kit: stale a recorded group has no family: a standby beside a recording sees the memory as it was
// kit: no-record a signal is delivered between two doors, where no replay finds it again: the recording ends there, and says so
#include "guest.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>

enum { CHILDREN = 3, ROUNDS = 2 };

struct shared {
    uint64_t by[CHILDREN];
    char room[1 << 20];
};

static volatile sig_atomic_t caught;

static void handler(int signal)
{
    (void)signal;
    caught = 1;
}

static void child(struct shared *s, int me)
{
    const struct itimerval once = { { 0, 0 }, { 0, 500000 } };
    struct sigaction action = { .sa_handler = handler };
    uint64_t x = 1;

    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    for (int n = 0; n < ROUNDS; n++) {
        s->by[me]++;
        guest_pause_us(1000);
    }
    CHECK(setitimer(ITIMER_REAL, &once, NULL) == 0);
    while (!caught)
        x = guest_mix(x);
    CHECK(x != 0);
    _exit(3 + me);
}

int main(void)
{
    int status, codes = 0;
    struct shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(s != MAP_FAILED);
    memset(s->room, 1, sizeof s->room);
    for (int me = 0; me < CHILDREN; me++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
            child(s, me);
    }
    for (int me = 0; me < CHILDREN; me++) {
        CHECK(waitpid(-1, &status, 0) > 0 && WIFEXITED(status));
        codes += WEXITSTATUS(status);
    }
    CHECK(codes == 12);
    for (int me = 0; me < CHILDREN; me++)
        CHECK(s->by[me] == ROUNDS);
    printf("children %d\n", CHILDREN);
    return guest_ok();
}
