// Shows: a child with its maker's memory that runs beside it (a clone that is neither a thread nor a vfork): both make calls at once, each
// has its own number, and a signal for the maker is handled in the maker and ends its call.
// Breaks if: the runtime takes the child for the thread that made it: what one is in the middle of is then the other's.
// kit: no-kill no standby can be made while the child lives
// kit: allow unprotected a copy would not share its memory with the child
// kit: allow standby_lost the same
// kit: no-record the recording ends there
// kit: no-checkpoint a process that it has made beside itself is not there
#include "guest.h"
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { ROUNDS = 3, STEPS = 2000, STACK = 1 << 16, SIGNALS = 40 };

static int to[2], from[2];
static volatile pid_t maker, handled_in;
static volatile long served, wrong_number;

static void handle(int signal)
{
    (void)signal;
    handled_in = (pid_t)syscall(SYS_getpid);
}

static int beside(void *unused)
{
    char token;

    (void)unused;
    while (read(to[0], &token, 1) == 1 && token != 'q') {
        served++;
        if ((pid_t)syscall(SYS_getpid) == maker)
            wrong_number++;
        if (token == 's')
            kill(maker, SIGUSR1);
        else if (write(from[1], &token, 1) != 1)
            _exit(3);
    }
    _exit(token == 'q' ? 7 : 4);
}

int main(void)
{
    static char stack[STACK] __attribute__((aligned(16)));
    struct sigaction action = { .sa_handler = handle };
    int status;
    char token;

    maker = getpid();
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        CHECK(pipe(to) == 0 && pipe(from) == 0);
        served = 0;
        pid_t child = clone(beside, stack + STACK, CLONE_VM | CLONE_FILES | SIGCHLD, NULL);
        CHECK(child > 0);
        for (int n = 0; n < STEPS; n++) {
            char sent = (char)('A' + n % 20);
            CHECK(write(to[1], &sent, 1) == 1 && read(from[0], &token, 1) == 1 && token == sent);
            CHECK(getpid() == maker);
        }
        for (int n = 0; n < SIGNALS; n++) {
            handled_in = 0;
            guest_write_all(to[1], "s", 1);
            /* The signal comes before this or in it. */
            for (int looks = 0; handled_in == 0; looks++) {
                CHECK(looks < 2000);
                usleep(1000);
            }
            CHECK(handled_in == maker);
        }
        guest_write_all(to[1], "q", 1);
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
        CHECK(served == STEPS + SIGNALS && wrong_number == 0);
        CHECK(close(to[0]) == 0 && close(to[1]) == 0 && close(from[0]) == 0 && close(from[1]) == 0);
        guest_pause_us(50000);
    }
    return guest_ok();
}
