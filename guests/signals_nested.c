// Shows: two signals that wait are let through at once by sigsuspend, and the handler of each makes system calls: both run, each round.
// Breaks if: the second signal is delivered inside the first one's handler, and the log goes on as if it were still to come.
#include "guest.h"
#include <signal.h>
#include <sys/wait.h>

enum { ROUNDS = 400 };

static volatile sig_atomic_t first, second;
static int out;

static void on_first(int signal)
{
    (void)signal;
    guest_write_all(out, "1", 1);
    first++;
    guest_write_all(out, "1", 1);
}

static void on_second(int signal)
{
    (void)signal;
    guest_write_all(out, "2", 1);
    second++;
}

int main(void)
{
    struct sigaction one = { .sa_handler = on_first }, two = { .sa_handler = on_second };
    sigset_t both, open;
    char bytes[8];
    int ends[2];

    CHECK(pipe(ends) == 0);
    out = ends[1];
    sigemptyset(&both);
    sigaddset(&both, SIGUSR1);
    sigaddset(&both, SIGUSR2);
    CHECK(sigaction(SIGUSR1, &one, NULL) == 0 && sigaction(SIGUSR2, &two, NULL) == 0);
    CHECK(sigprocmask(SIG_BLOCK, &both, &open) == 0);
    for (int r = 1; r <= ROUNDS; r++) {
        CHECK(kill(getpid(), SIGUSR1) == 0 && kill(getpid(), SIGUSR2) == 0);
        FAILS(sigsuspend(&open), EINTR);
        CHECK(first == r && second == r);
        guest_read_all(ends[0], bytes, 3);
        CHECK(bytes[0] + bytes[1] + bytes[2] == '1' + '1' + '2');
        guest_pause_us(300);
    }
    printf("rounds %d\n", ROUNDS);
    return guest_ok();
}
